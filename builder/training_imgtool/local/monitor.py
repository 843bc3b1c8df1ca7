"""Follows the containers of a run: threads read each container's output and memory use, and wait for its end."""

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

LAST_LINES = 20  # of a replica's output, shown after a failure
_LAST_ERRORS = 15  # of these from stderr, if the last lines of stderr are missing among them
_NEAR_BYTES = 4 << 20  # of stdout, which an engine may log after later lines of stderr; 1.9 MB seen
_NEAR_LINES = 1_000_000
_LONGEST = 64 << 10  # bytes after which an unfinished line is shown as a line
_QUIET_SECONDS = 2.0  # without output, after which the output of an ended container counts as complete


@dataclass(frozen=True, slots=True)
class Report:
    """How a replica's container number `attempt` ended, or the error that kept imgtool from finding out."""

    name: str
    attempt: int
    ended: Ended | ImgtoolError


@dataclass(slots=True)
class _Reader:
    """A thread that reads a container's output: the bytes read, the time of the last byte, and whether to stop."""

    thread: threading.Thread | None = None
    size: int = 0
    last: float = 0.0
    stopped: bool = False


class Watcher:
    """Follows containers; starts three threads for each."""

    def __init__(self, containers: Containers, progress: Progress) -> None:
        self._containers = containers
        self._progress = progress
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._readers: dict[str, _Reader] = {}

    def follow(self, name: str, attempt: int, container_id: str, used: Callable[[int], None]) -> None:
        """Starts threads that pass on a container's output, pass its memory use to `used`, and report its end."""
        self._readers[name] = reader = _Reader(last=time.monotonic())
        reader.thread = start_thread(f"imgtool-log-{name}", lambda: self._read(name, container_id, reader))
        start_thread(f"imgtool-{name}", lambda: self._wait(name, attempt, container_id))
        start_thread(f"imgtool-memory-{name}", lambda: self._measure(name, container_id, used))

    def next(self, seconds: float) -> Report | None:
        """Returns the next report, or None if none arrives within `seconds`."""
        with suppress(queue.Empty):
            return self._reports.get(timeout=seconds)
        return None

    def drain(self, names: Iterable[str], seconds: float) -> None:
        """Reads the remaining output for at most `seconds`; sends a note about each replica whose output went on."""
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
                self._progress(Note(f"{name} printed more than imgtool could read; only the first {shown} are shown"))
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
        with suppress(ImgtoolError):  # the summary then has no memory figure
            for now in self._containers.memory(container_id, name):
                used(now)


def lines_of(blocks: Iterable[bytes]) -> Iterator[str]:
    """Splits UTF-8 bytes into lines that are safe to print on a terminal; also yields an unfinished last line.

    A progress bar that overwrites its line leaves only its last state in the line.
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
    """Returns how many last lines to search for stderr, as an engine may log stderr before older lines of stdout."""
    return min(_NEAR_LINES, LAST_LINES * _NEAR_BYTES // (len(end) + 1))


def join_ends(lines: tuple[str, ...], errors: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the last lines that a replica printed, including the end of its stderr.

    An engine reads stdout and stderr separately, so it may log a traceback before lines that were printed earlier.

    Args:
        lines: the last lines of both streams.
        errors: the last lines of stderr from about the same time.
    """
    lines = lines[-LAST_LINES:]
    last = next((line for line in reversed(errors) if line.strip()), None)
    if last is None or last in lines:
        return lines
    end = errors[-_LAST_ERRORS:]
    return (*lines[len(end) - LAST_LINES :], *end)


def _text(line: bytes) -> str:
    return sanitize_line(line.decode(errors="replace"))
