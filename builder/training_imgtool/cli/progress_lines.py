"""Progress as lines for logs and pipes, without escape sequences and carriage returns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from training_imgtool.base.progress import Done, Event, LogLine, Note, Planned, Step, Transfer
from training_imgtool.base.sanitize import sanitize_line

_SUMMARY_SECONDS = 5.0  # between two lines about the same subject's bytes
_HEARTBEAT_SECONDS = 30.0  # CI systems end a job that is silent for longer


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of a subject.

    Attributes:
        done: bytes so far.
        total: bytes in all; None if unknown.
        is_estimate: whether the total may be wrong, because it was announced as an estimate or not at all.
    """

    done: int
    total: int | None
    is_estimate: bool


class Row:
    """The state of one subject, from its announcement to its end. Times are in seconds."""

    def __init__(self) -> None:
        self.began: float | None = None  # None while the subject waits
        self.text = ""
        self.log = ""
        self._planned: int | None = None
        self._is_estimate = False
        self._parts: dict[str, tuple[int, int | None]] = {}

    def plan(self, size: int | None, *, is_estimate: bool = False) -> None:
        """Adds `size`, the bytes that the subject will move; None if the size is unknown."""
        self._is_estimate = self._is_estimate or is_estimate
        if size is not None:
            self._planned = size + (self._planned or 0)

    def step(self, text: str, now: float) -> None:
        """Begins a step of the subject, and counts the step's bytes from 0."""
        is_first = not self.text
        self.began = now if self.began is None else self.began
        self.text, self.log = text, ""
        if not is_first:  # what was announced before the first step is for that one
            self._planned, self._is_estimate = None, False
            self._parts.clear()

    def move(self, what: str, done: int, total: int | None, now: float) -> None:
        """Records the bytes of one transfer."""
        self.began = now if self.began is None else self.began
        self._parts[what] = (done, total)

    def moved(self) -> Moved | None:
        """Returns how many bytes the step has moved; None if no bytes were moved or announced."""
        if self.is_idle and self._planned is None:
            return None
        done = sum(part for part, _ in self._parts.values())
        totals = [total for _, total in self._parts.values()]
        total = None if None in totals else sum(total or 0 for total in totals)
        is_estimate = self._is_estimate or self._planned is None or (total or 0) > self._planned
        if self._planned is not None:
            total = max(self._planned, total or 0)
        if is_estimate and total is not None:
            total = max(total, done)
        return Moved(done, total, is_estimate)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has moved in this step."""
        return not self._parts

    def elapsed(self, now: float) -> float | None:
        """Returns the seconds since the subject began; None while the subject waits to begin."""
        return None if self.began is None else now - self.began


class Writer:
    """A text stream that ignores errors of writing, because a closed stderr must not fail a build."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Writes `text`; a character that the encoding lacks becomes `?`."""
        if self._stream is not None:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._stream = None
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None

    def isatty(self) -> bool:
        """Returns whether the stream is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        """Returns the file descriptor, from which rich gets the terminal's size; raises OSError for a closed stream."""
        if self._stream is None:
            raise OSError("closed")
        return self._stream.fileno()

    def line(self, text: str) -> None:
        """Writes one line and flushes the stream."""
        self.write(f"{text}\n")
        self.flush()


class PlainLines:
    """Writes a line per step and log line, every few seconds the bytes moved, and in long pauses a sign of life."""

    def __init__(
        self, writer: Writer, clock: Callable[[], float], *, heartbeat_seconds: float = _HEARTBEAT_SECONDS
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._heartbeat = heartbeat_seconds
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._shown: dict[str, float] = {}  # when a line about a subject's bytes was last written
        self._written = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="imgtool-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        now = self._clock()
        with self._lock:
            match event:
                case Note(text):
                    self._line(f"note: {sanitize_line(text)}")
                case Planned(subject, size, is_estimate):
                    self._row(subject).plan(size, is_estimate=is_estimate)
                case Step(subject, text):
                    self._row(subject).step(sanitize_line(text), now)
                    self._about(subject, sanitize_line(text))
                case LogLine(subject, text):
                    self._about(subject, f"| {sanitize_line(text)}")
                case Transfer():
                    self._transfer(event, now)
                case Done():
                    self._done(event, now)

    def _row(self, subject: str) -> Row:
        return self._rows.setdefault(subject, Row())

    def _transfer(self, event: Transfer, now: float) -> None:
        row = self._row(event.subject)
        if row.is_idle:
            self._shown[event.subject] = now
        row.move(event.what, event.done, event.total, now)
        if now - self._shown[event.subject] >= _SUMMARY_SECONDS:
            self._shown[event.subject] = now
            self._about(event.subject, format_moved(row))

    def _done(self, event: Done, now: float) -> None:
        row = self._rows.pop(event.subject, None)
        seconds = event.seconds if event.seconds is not None or row is None else row.elapsed(now)
        parts = [event.outcome.value, sanitize_line(event.text), format_seconds(seconds)]
        self._about(event.subject, "  ".join(part for part in parts if part))

    def _about(self, subject: str, text: str) -> None:
        self._line(f"[{sanitize_line(subject)}] {text}")

    def _line(self, text: str) -> None:
        self._written = self._clock()
        self._writer.line(text)

    def _beat(self) -> None:
        while not self._ended.wait(min(1.0, self._heartbeat / 2)):
            with self._lock:
                now = self._clock()
                if now - self._written < self._heartbeat:
                    continue
                running = {subject: row for subject, row in self._rows.items() if row.began is not None}
                if not running:
                    self._line("still working")
                for subject, row in running.items():
                    what = ", ".join(part for part in (row.text, format_moved(row)) if part)
                    self._about(subject, f"still working for {format_seconds(row.elapsed(now))}{what and f': {what}'}")


def format_moved(row: Row) -> str:
    """Formats bytes like `12.3 MB of 40.0 MB`, in decimal units; `~` marks an estimated total."""
    moved = row.moved()
    if moved is None:
        return ""
    whole = "" if moved.total is None else f" of {'~' if moved.is_estimate else ''}{format_size(moved.total)}"
    return f"{format_size(moved.done)}{whole}"


def format_size(count: float) -> str:
    """Formats bytes like `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.95 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def format_seconds(seconds: float | None) -> str:
    """Formats seconds like `3.2s`, `42s`, `2m05s` or `1h02m`; returns an empty text for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
