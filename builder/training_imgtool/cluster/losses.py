"""The losses that a run's programs report: in the lines that they print, and in TensorBoard's event files.

An event file is a TFRecord file of `Event` messages (tensorflow/core/util/event.proto): of each message wall_time (1)
and summary.value (5, 1) matter here, and of that tag (1), simple_value (2) and the tensor (8) of one number.
"""

from __future__ import annotations

import math
import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.progress import Event, LogLine, Progress, Step, silent

_KIND = "train|training|val|valid|validation|test|eval|total|mean|avg|average|final|generator|discriminator"
_LOSS = re.compile(
    rf"(?<![\w/.-])(?P<name>(?:[a-z]\w*[_/]|(?:{_KIND}) )?loss)['\"]?(?:\s*[:=]\s*|\s+(?:is |of )?)"
    r"(?P<value>[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w/%])",
    re.IGNORECASE,
)
_MOST = 2000  # points of a curve
_MOST_CURVES = 24
_LARGEST_FILE = 64 << 20
_EVENTS = "events.out.tfevents."
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types of protocol buffers

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over the seconds of a run."""

    name: str
    points: tuple[tuple[float, float], ...]


class LossReader:
    """Passes events on, and keeps the losses that replicas print. Thread-safe.

    Attributes:
        after: what takes the events.
        wall: when the run began, as event files tell the time.
    """

    def __init__(self, after: Progress = silent) -> None:
        self.after = after
        self._lock = threading.Lock()
        self._found: dict[str, Points] = {}
        self._began = time.monotonic()
        self.wall = time.time()

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        match event:
            case Step("run", _):
                self._began, self.wall = time.monotonic(), time.time()
            case LogLine(subject, text):
                self._read(subject, text)
        self.after(event)

    def _read(self, subject: str, text: str) -> None:
        seconds = max(0.0, time.monotonic() - self._began)
        for name, value in find_losses(text):
            with self._lock:
                add_point(self._found.setdefault(f"{subject} {name}", []), (seconds, value))

    def curves(self) -> tuple[Curve, ...]:
        """Returns what was printed, by replica and name."""
        with self._lock:
            return _as_curves(self._found)


def find_losses(line: str) -> list[tuple[str, float]]:
    """Finds the losses in a line, each name once, such as `loss: 0.25 - val_loss: 0.3` or `loss = 0.5, step = 100`."""
    found = {match["name"].lower(): float(match["value"]) for match in _LOSS.finditer(line)}
    return list(found.items())


def add_point(points: Points, point: tuple[float, float]) -> None:
    """Adds a point; a curve that becomes long loses every second one."""
    points.append(point)
    if len(points) > _MOST:
        del points[1:-1:2]


def read_events(job_dir: Path, names: list[str], wall: float) -> tuple[Curve, ...]:
    """Reads the losses of event files below a job directory, as seconds since `wall`; what is damaged ends a file."""
    found: dict[str, Points] = {}
    for name in sorted(names):
        path = job_dir / name
        if not path.name.startswith(_EVENTS):
            continue
        try:
            data = path.read_bytes() if path.stat().st_size <= _LARGEST_FILE else b""
        except OSError:
            continue
        folder = Path(name).parent.as_posix()
        for seconds, tag, value in _read_file(data):
            if "loss" in tag.lower() and math.isfinite(value):
                add_point(found.setdefault(f"{folder} {tag}".removeprefix(". "), []), (max(0.0, seconds - wall), value))
    return _as_curves(found)


def _as_curves(found: Mapping[str, Points]) -> tuple[Curve, ...]:
    return tuple(Curve(name, tuple(points)) for name, points in sorted(found.items())[:_MOST_CURVES])


def _read_file(data: bytes) -> Iterator[tuple[float, str, float]]:
    """Yields time, tag and value of each scalar."""
    at = 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + size]
        if len(event) < size:
            return
        at += size + 16
        try:
            fields = _fields(event)
            (seconds,) = struct.unpack("<d", fields[1][-1])
            for summary in fields.get(5, ()):
                for value in _fields(summary).get(1, ()):
                    parts = _fields(value)
                    yield from ((seconds, parts[1][-1].decode(), number) for number in _numbers(parts))
        except (LookupError, ValueError, struct.error):
            return


def _numbers(value: Mapping[int, list[bytes]]) -> Iterator[float]:
    """Yields the one number of a value; none for images and the like."""
    if 2 in value:
        yield struct.unpack("<f", value[2][-1])[0]
    elif 8 in value:
        tensor = _fields(value[8][-1])
        for content in (tensor.get(4) or tensor.get(5) or [])[-1:]:
            if len(content) == 4 and tensor.get(1, [b""])[-1] == b"\x01":  # DT_FLOAT
                yield struct.unpack("<f", content)[0]


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Reads a message's fields by number, each value as its bytes."""
    fields: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind, start = key & 7, at
        if kind == _VARINT:
            number, at = _varint(message, at)
            content = bytes([number]) if number < 256 else message[start:at]
        elif kind == _BYTES:
            size, start = _varint(message, at)
            at = start + size
            content = message[start:at]
        elif kind in {_DOUBLE, _FLOAT}:
            at += 8 if kind == _DOUBLE else 4
            content = message[start:at]
        else:
            raise ValueError("no wire type that event files have")
        if at > len(message):
            raise ValueError("a field ends behind its message")
        fields.setdefault(key >> 3, []).append(content)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 63:
            return value, at
