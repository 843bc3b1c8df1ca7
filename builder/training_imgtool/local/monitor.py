"""Follows a supervisor's containers: threads read their output and memory, and wait for their ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import LogLine, Note, Progress
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.base.threads import start_thread

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.containers import Containers, Ended

LAST_LINES = 20  # of a replica, that a failure shows
_LAST_ERRORS = 15  # of these, if stderr's end is not among them
_NEAR_BYTES = 4 << 20  # so much of stdout an engine may log after what the program printed to stderr later; 1.9 MB seen
_NEAR_LINES = 1_000_000
_LONGEST = 64 << 10  # bytes without a line's end that are shown as a line
_QUIET_SECONDS = 2.0  # without a byte, after which a dead container's output counts as read


@dataclass(frozen=True, slots=True)
class Report:
    """How a replica's container number `attempt` ended, or why that cannot be known."""

    name: str
    attempt: int
    ended: Ended | ImgtoolError


@dataclass(slots=True)
class _Reader:
    """A thread that reads one container's output: how many bytes so far, when the last came, and whether to stop."""

    thread: threading.Thread | None = None
    size: int = 0
    last: float = 0.0
    stopped: bool = False


class Watcher:
    """Follows containers, each in threads of its own."""

    def __init__(self, containers: Containers, progress: Progress) -> None:
        self._containers = containers
        self._progress = progress
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._readers: dict[str, _Reader] = {}

    def follow(self, name: str, attempt: int, container_id: str, used: Callable[[int], None]) -> None:
        """Passes on what a container prints, tells `used` its bytes of memory, and reports when it has ended."""
        self._readers[name] = reader = _Reader(last=time.monotonic())
        reader.thread = start_thread(f"imgtool-log-{name}", lambda: self._read(name, container_id, reader))
        start_thread(f"imgtool-{name}", lambda: self._wait(name, attempt, container_id))
        start_thread(f"imgtool-memory-{name}", lambda: self._measure(name, container_id, used))

    def next(self, seconds: float) -> Report | None:
        """Returns the next report, or None when there was none for `seconds`."""
        with suppress(queue.Empty):
            return self._reports.get(timeout=seconds)
        return None

    def drain(self, names: Iterable[str], seconds: float) -> None:
        """Reads on while bytes come, for at most `seconds`; notes what stays unread of containers that have ended."""
        began = time.monotonic()
        for name in names:
            reader = self._readers.get(name)
            if reader is None or reader.thread is None:
                continue
            while reader.thread.is_alive():
                quiet = time.monotonic() - max(began, reader.last) > _QUIET_SECONDS
                if quiet or time.monotonic() - began > seconds:
                    break
                reader.thread.join(0.05)
            if reader.thread.is_alive() and time.monotonic() - reader.last < _QUIET_SECONDS:
                shown = f"{reader.size / 1e6:.1f} MB"
                self._progress(Note(f"{name} printed more than imgtool could read: it shows the first {shown}"))
            reader.stopped = True

    def _wait(self, name: str, attempt: int, container_id: str) -> None:
        try:
            ended: Ended | ImgtoolError = self._containers.wait(container_id, name)
        except ImgtoolError as error:
            ended = error
        self._reports.put(Report(name, attempt, ended))

    def _read(self, name: str, container_id: str, reader: _Reader) -> None:
        def blocks() -> Iterator[bytes]:
            for block in self._containers.output(container_id, name):
                reader.size += len(block)
                reader.last = time.monotonic()
                if reader.stopped:
                    return
                yield block

        with suppress(ImgtoolError):  # if the engine broke, the thread that waits reports it
            for line in lines_of(blocks()):
                self._progress(LogLine(name, line))

    def _measure(self, name: str, container_id: str, used: Callable[[int], None]) -> None:
        with suppress(ImgtoolError):  # the summary then has no figure
            for now in self._containers.memory(container_id, name):
                used(now)


def lines_of(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of a stream of bytes, as UTF-8, made safe for a terminal; an unfinished one at the end counts.

    A progress bar, which writes over its line, gives its last state when the line ends.
    """
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from map(_text, whole)
        if len(rest) > _LONGEST:
            yield _text(rest)
            rest = b""
    if rest:
        yield _text(rest)


def lines_near(end: bytes) -> int:
    """Returns how many lines like the last ones may have been logged before what the program printed earlier."""
    return min(_NEAR_LINES, LAST_LINES * _NEAR_BYTES // (len(end) + 1))


def join_ends(lines: tuple[str, ...], errors: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the last lines of a replica, with the end of its stderr.

    An engine reads stdout and stderr apart, so a traceback may be logged before the output that it follows.

    Args:
        lines: the last ones of both streams.
        errors: those of stderr, of about the same time.
    """
    lines = lines[-LAST_LINES:]
    last = next((line for line in reversed(errors) if line.strip()), None)
    if last is None or last in lines:
        return lines
    end = errors[-_LAST_ERRORS:]
    return (*lines[len(end) - LAST_LINES :], *end)


def _text(line: bytes) -> str:
    return sanitize_line(line.decode(errors="replace"))
