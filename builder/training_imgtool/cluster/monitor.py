"""What runs beside a supervisor: threads that read containers' output and memory, and wait for their ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.cluster.logs import Tail, lines_of
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import LogLine, Progress

if TYPE_CHECKING:
    from training_imgtool.engines.containers import Ended
    from training_imgtool.engines.docker.containers import Containers

_DRAIN_SECONDS = 2.0  # for a dead container's last lines


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

    def follow(self, name: str, attempt: int, container_id: str, tail: Tail, used: Callable[[int], None]) -> None:
        """Passes on what a container prints, tells `used` its bytes of memory, and reports when it has ended."""
        _thread(f"imgtool-{name}", lambda: self._wait(name, attempt, container_id, tail))
        _thread(f"imgtool-memory-{name}", lambda: self._measure(name, container_id, used))

    def next(self, seconds: float) -> Report | None:
        """The next report, or None when there was none for `seconds`."""
        with suppress(queue.Empty):
            return self._reports.get(timeout=seconds)
        return None

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

    def _measure(self, name: str, container_id: str, used: Callable[[int], None]) -> None:
        with suppress(ImgtoolError):  # it is only said in the summary, where it is missing then
            for now in self._containers.memory(container_id, name):
                used(now)


def _thread(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
