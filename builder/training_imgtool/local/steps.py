"""Finds step and epoch numbers in the output of programs, to compare the progress before and after a restart."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from training_imgtool.base.progress import Event, LogLine, Progress

_COUNT = re.compile(  # only the singular, because `steps: 1000` is a setting
    r"(?<![\w.-])(?:(?:global|train|training|trained|current|cur|opt|tf)[ _])?"
    r"(?P<unit>step|iteration|iter|epoch|ep\.)['\"]?\s{0,8}[:=#]?\s{0,8}\[?"
    r"(?P<number>\d{1,15})(?!\d*\.\d|[\d.]*[smhx%])",
    re.IGNORECASE,
)
_BARE = re.compile(  # `100/1200: loss = 0.5`, and `[100] loss=0.5` of clu.metric_writers
    r"(\A\s{0,8}|\] \[(?=\d{1,15}\] \w+=))(?P<number>\d{1,15})(?:\]|/(?!(?P=number)\b)\d{1,15}\b(?=.*(?:loss|acc)))"
)
_BACK = re.compile(  # a line about a step of another process, or about a checkpoint's, as Orbax prints many
    r"\b(?:resum|restor|load|continu|from step|delet|missing)|(?<![/\w])checkpoint|finali[sz]e", re.IGNORECASE
)
_MOST = 10_000  # lines kept per replica


@dataclass(frozen=True, slots=True)
class Count:
    """A step or epoch that a replica printed, and its time by the monotonic clock."""

    at: float
    unit: str
    number: int


class StepReader:
    """Passes events on, and records the steps and epochs that replicas print. Thread-safe."""

    def __init__(self, after: Progress) -> None:
        self._after = after
        self._lock = threading.Lock()
        self._counts: dict[str, deque[Count]] = {}

    def __call__(self, event: Event) -> None:
        """Reads one event, and passes it on."""
        if isinstance(event, LogLine):
            now = time.monotonic()
            with self._lock:
                counts = self._counts.setdefault(event.subject, deque(maxlen=_MOST))
                counts.extend(Count(now, unit, number) for unit, number in find_counts(event.text))
        self._after(event)

    def counts_of(self, name: str) -> tuple[Count, ...]:
        """Returns the steps and epochs that a replica has printed so far."""
        with self._lock:
            return tuple(self._counts.get(name, ()))


def find_counts(line: str) -> list[tuple[str, int]]:
    """Finds the step and the epoch in a line such as `loss = 0.5, step = 100` or `Epoch 3/10`."""
    if _BACK.search(line):
        return []
    found: dict[str, str] = {}
    for match in (*_COUNT.finditer(line), *_BARE.finditer(line)):
        unit = "epoch" if match[1].lower().startswith("ep") else "step"
        found.setdefault(unit, match["number"])
    return [(unit, int(number)) for unit, number in found.items()]


def split_counts(counts: Sequence[Count], back: float) -> tuple[list[Count], list[Count]]:
    """Returns the counts of one unit before the time `back`, and those after it.

    The unit is the step, or the epoch if the step numbers begin again in each epoch or stay the same.
    """
    epochs = {count.number for count in counts if count.unit == "epoch" and count.at < back}
    for unit in ("step", "epoch"):
        before = [count for count in counts if count.unit == unit and count.at < back]
        after = [count for count in counts if count.unit == unit and count.at >= back]
        numbers = [count.number for count in before]
        if (before or after) and numbers == sorted(numbers) and (unit == "epoch" or len({*numbers}) >= len(epochs)):
            return before, after
    return [], []


def begins_again(counts: Sequence[Count], back: float) -> bool:
    """Tells whether the counts after the time `back` start as low as the first ones, as if nothing had been trained."""
    before, after = split_counts(counts, back)
    return bool(before and after) and after[0].number <= before[0].number < before[-1].number


def widest_gap(*runs: Sequence[Count]) -> int | None:
    """Returns the largest increase between two successive counts of a run; None if no count increases."""
    gaps = (later.number - one.number for run in runs for one, later in pairwise(run))
    return max((gap for gap in gaps if gap > 0), default=None)
