"""Progress as lines: for logs, pipes and programs. No escape sequence, no carriage return.

The JSON lines are a contract: `{"time": seconds since the start, "event": step|transfer|log|done|note, …}` with the
event's own fields: `subject`, `text`, `what`, `done`, `total`, `outcome`, `seconds`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self, TextIO

from training_imgtool.core.progress import Done, Event, LogLine, Note, Step, Transfer
from training_imgtool.core.sanitize import LONGEST_LINE, sanitize_line

_SUMMARY_SECONDS = 5.0  # between two lines about the same subject's bytes
_HEARTBEAT_SECONDS = 30.0  # CI systems end a job that is silent for longer
_NAMES: dict[type, str] = {Step: "step", Transfer: "transfer", LogLine: "log", Done: "done", Note: "note"}


class Writer:
    """A text stream that swallows its own failures: progress is never a reason to fail (stderr may be closed)."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Writes what the stream's encoding can say."""
        if self._stream is not None:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._stream = None
        return len(text)

    def flush(self) -> None:
        """Flushes, if that is possible."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        """The stream's descriptor, from which the terminal's size is read."""
        if self._stream is None:
            raise OSError("closed")
        return self._stream.fileno()

    def line(self, text: str) -> None:
        """Writes one line, at once."""
        self.write(f"{text}\n")
        self.flush()


class _Sent:
    """The bytes of one subject since its last step."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.shown = began
        self.parts: dict[str, tuple[int, int | None]] = {}


class PlainLines:
    """One line per step, each printed line behind its subject, bytes every few seconds, a sign of life in silence."""

    def __init__(
        self, writer: Writer, clock: Callable[[], float], *, heartbeat_seconds: float = _HEARTBEAT_SECONDS
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._heartbeat = heartbeat_seconds
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._steps: dict[str, str] = {}
        self._sent: dict[str, _Sent] = {}
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
        with self._lock:
            match event:
                case Note(text):
                    self._line(f"note: {sanitize_line(text)}")
                case Step(subject, text):
                    self._began.setdefault(subject, self._clock())
                    self._steps[subject] = sanitize_line(text)
                    self._sent.pop(subject, None)
                    self._about(subject, sanitize_line(text))
                case LogLine(subject, text):
                    self._about(subject, f"| {sanitize_line(text)}")
                case Transfer():
                    self._moved(event)
                case Done():
                    self._done(event)

    def _moved(self, event: Transfer) -> None:
        now = self._clock()
        sent = self._sent.setdefault(event.subject, _Sent(now))
        self._began.setdefault(event.subject, now)
        sent.parts[event.what] = (event.done, event.total)
        if now - sent.shown >= _SUMMARY_SECONDS:
            sent.shown = now
            self._about(event.subject, _moved_text(sent, now))

    def _done(self, event: Done) -> None:
        began = self._began.pop(event.subject, None)
        self._steps.pop(event.subject, None)
        self._sent.pop(event.subject, None)
        seconds = event.seconds if event.seconds is not None or began is None else self._clock() - began
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
                if not self._began:
                    self._line("still working")
                for subject, began in self._began.items():
                    sent = self._sent.get(subject)
                    moved = f", {_moved_text(sent, now)}" if sent else ""
                    step = self._steps.get(subject, "")
                    self._about(subject, f"still working for {format_seconds(now - began)}: {step}{moved}")


class JsonLines:
    """One JSON object per event; transfers at most once a second each, and when they end."""

    def __init__(self, writer: Writer, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._shown: dict[tuple[str, str], float] = {}

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        with self._lock:
            now = self._clock()
            if isinstance(event, Transfer):
                name = (event.subject, event.what)
                if event.done != event.total and now - self._shown.get(name, -1.0) < 1.0:
                    return
                self._shown[name] = now
            record: dict[str, Any] = {"time": round(now - self._began, 3), "event": _NAMES[type(event)]}
            record |= {one.name: _cut(getattr(event, one.name)) for one in fields(type(event))}
            self._writer.line(json.dumps(record))


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > LONGEST_LINE:
        return f"{value[:LONGEST_LINE]}… ({len(value)} characters)"
    return value


def _moved_text(sent: _Sent, now: float) -> str:
    done = sum(part for part, _ in sent.parts.values())
    totals = [total for _, total in sent.parts.values()]
    total = None if None in totals else sum(total or 0 for total in totals)
    passed = now - sent.began
    return format_bytes(done, total, done / passed if passed > 0 else None)


def format_bytes(done: int, total: int | None, rate: float | None) -> str:
    """Such as `12.3 MB of 40.0 MB, 3.1 MB/s`; decimal units, as registries and disks count."""
    text = format_size(done) if total is None else f"{format_size(done)} of {format_size(total)}"
    return f"{text}, {format_size(rate)}/s" if rate is not None else text


def format_size(count: float) -> str:
    """Such as `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.95 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def format_seconds(seconds: float | None) -> str:
    """Such as `3.2s`, `42s`, `2m05s`, `1h02m`; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
