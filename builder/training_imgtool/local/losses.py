"""Finds training losses in the output of a run's programs."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass

from training_imgtool.base.progress import Event, LogLine, Progress, Step, silent

_KIND = "train|training|val|valid|validation|test|eval|total|mean|avg|average|final|generator|discriminator"
_LOSS = re.compile(
    rf"(?<![\w/.-])(?P<name>(?:[a-z]\w*[_/]|(?:{_KIND}) )?loss)['\"]?(?:\s*[:=]\s*|\s+(?:is |of )?)"
    r"(?P<value>[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w/%])",
    re.IGNORECASE,
)
_MOST = 2000  # points of a curve
_MOST_CURVES = 24

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A named series of values, each with its time in seconds since the run began."""

    name: str
    points: tuple[tuple[float, float], ...]


class LossReader:
    """Passes events on to `after`, and records the losses that replicas print. Thread-safe."""

    def __init__(self, after: Progress = silent) -> None:
        self.after = after
        self._lock = threading.Lock()
        self._found: dict[str, Points] = {}
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Reads one event, and passes it on."""
        match event:
            case Step("run", _):
                self._began = time.monotonic()
            case LogLine(subject, text):
                self._read(subject, text)
        self.after(event)

    def _read(self, subject: str, text: str) -> None:
        seconds = max(0.0, time.monotonic() - self._began)
        for name, value in find_losses(text):
            with self._lock:
                add_point(self._found.setdefault(f"{subject} {name}", []), (seconds, value))

    def curves(self) -> tuple[Curve, ...]:
        """Returns one curve for each replica and each name of a loss."""
        with self._lock:
            found = sorted(self._found.items())[:_MOST_CURVES]
            return tuple(Curve(name, tuple(points)) for name, points in found)


def find_losses(line: str) -> list[tuple[str, float]]:
    """Finds losses in a line such as `loss: 0.25 - val_loss: 0.3` or `loss = 0.5, step = 100`, one for each name."""
    found = {match["name"].lower(): float(match["value"]) for match in _LOSS.finditer(line)}
    return list(found.items())


def add_point(points: Points, point: tuple[float, float]) -> None:
    """Adds a point; drops every second point of a curve that becomes too long."""
    points.append(point)
    if len(points) > _MOST:
        del points[1:-1:2]
