"""What runs beside a supervisor: threads that read containers' output, wait for their ends and sample their memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.cluster.logs import Tail, lines_of
from builder.errors import ImgtoolError
from builder.progress import LogLine, Progress

if TYPE_CHECKING:
    from builder.engines.docker_containers import Containers, Ended

_DRAIN_SECONDS = 2.0  # for a dead container's last lines
_SAMPLE_SECONDS = 1.0
_FIRST_SAMPLES = 5  # that come sooner, for containers that do not live long
_SOON = 0.2


@dataclass(frozen=True, slots=True)
class Report:
    """How a replica's container number `attempt` ended, or why that cannot be known."""

    name: str
    attempt: int
    ended: Ended | ImgtoolError


class Watcher:
    """Follows containers, each in threads of its own."""

    def __init__(self, containers: Containers, progress: Progress) -> None:
        self._containers = containers
        self._progress = progress
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._over = threading.Event()

    def follow(self, name: str, attempt: int, container_id: str, tail: Tail) -> None:
        """Passes on what a container prints, and reports when it has ended."""
        _thread(f"imgtool-{name}", lambda: self._wait(name, attempt, container_id, tail))

    def next(self, seconds: float) -> Report | None:
        """The next report, or None when there was none for `seconds`."""
        with suppress(queue.Empty):
            return self._reports.get(timeout=seconds)
        return None

    def sample(self, running: Callable[[], list[tuple[str, str]]], take: Callable[[str, int], None]) -> None:
        """Once a second until `close`, gives `take` each running container's name and bytes of memory."""
        _thread("imgtool-memory", lambda: self._sample(running, take))

    def close(self) -> None:
        """Takes no further samples; the other threads end with their containers."""
        self._over.set()

    def _wait(self, name: str, attempt: int, container_id: str, tail: Tail) -> None:
        """Two requests side by side: a container's output may end later than it does, or never."""
        reader = _thread(f"imgtool-log-{name}", lambda: self._read(name, container_id, tail))
        try:
            ended: Ended | ImgtoolError = self._containers.wait(container_id, name)
        except ImgtoolError as error:
            ended = error
        reader.join(_DRAIN_SECONDS)
        self._reports.put(Report(name, attempt, ended))

    def _read(self, name: str, container_id: str, tail: Tail) -> None:
        with suppress(ImgtoolError):  # if the engine broke, the thread that waits says so
            for line in lines_of(self._containers.output(container_id, name)):
                tail.add(line)
                self._progress(LogLine(name, line))

    def _sample(self, running: Callable[[], list[tuple[str, str]]], take: Callable[[str, int], None]) -> None:
        taken = 0
        while not self._over.wait(_SOON if taken < _FIRST_SAMPLES else _SAMPLE_SECONDS):
            taken += 1
            for name, container_id in running():
                with suppress(ImgtoolError):  # it may have ended meanwhile
                    used = self._containers.memory(container_id)
                    if used is not None:
                        take(name, used)


def _thread(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
