"""The state of one subject's progress: its step, its bytes, its rate and the time left. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_WINDOW_SECONDS = 5.0  # the rate is that of the last seconds
_SAMPLE_SECONDS = 0.2
_LEAST_PART = 500  # of the total must have moved in the window before its rate means anything


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of a subject.

    Attributes:
        done: bytes so far.
        total: bytes in all; None if unknown.
        is_estimate: the total may be wrong.
        rate: bytes per second, of the last seconds; None at the beginning and when all bytes have moved.
        left: seconds, by the average of the whole step, which a pause hardly changes; None without a rate or a total.
    """

    done: int
    total: int | None
    is_estimate: bool
    rate: float | None
    left: float | None


class Row:
    """One subject from its announcement to its end.

    Args:
        now: seconds of a clock.
    """

    def __init__(self, now: float) -> None:
        self.began: float | None = None  # None while the subject waits
        self.text = ""
        self.log = ""
        self.shown = now  # when a line about the bytes was last written
        self._planned: int | None = None
        self._is_estimate = False
        self._parts: dict[str, tuple[int, int | None]] = {}
        self._done = 0
        self._samples: deque[tuple[float, int]] = deque()
        self._moving_since = now

    def plan(self, size: int | None, *, is_estimate: bool = False) -> None:
        """Adds bytes that the subject will move; None if unknown."""
        self._is_estimate = self._is_estimate or is_estimate
        if size is not None:
            self._planned = size + (self._planned or 0)

    def step(self, text: str, now: float) -> None:
        """Begins a step; its bytes count from 0."""
        self.began = now if self.began is None else self.began
        self.text, self.log = text, ""
        if self._parts:
            self._planned, self._is_estimate, self._done = None, False, 0
            self._parts.clear()
            self._samples.clear()

    def move(self, what: str, done: int, total: int | None, now: float) -> None:
        """Records the bytes of one transfer."""
        self.began = now if self.began is None else self.began
        before, _ = self._parts.get(what, (0, None))
        if not self._parts:
            self._samples.append((now, 0))
            self._moving_since = now
        self._parts[what] = (done, total)
        self._done += done - before
        if now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, self._done))
            while now - self._samples[0][0] > _WINDOW_SECONDS and len(self._samples) > 2:
                self._samples.popleft()

    def moved(self, now: float) -> Moved | None:
        """Returns the bytes of the step so far; None if nothing moved."""
        if not self._parts:
            return None
        totals = [total for _, total in self._parts.values()]
        total = None if None in totals else sum(total or 0 for total in totals)
        if self._planned is not None:
            total = max(self._planned, total or 0)
        if self._is_estimate and total is not None and self._done >= total:
            total = None  # more will come than was announced
        since, before = self._samples[0]
        passed, new = now - since, self._done - before
        is_moving = total is None or total > self._done
        rate = new / passed if is_moving and passed >= 0.5 and new > 0 and new * _LEAST_PART > (total or 0) else None
        left = (total - self._done) * (now - self._moving_since) / self._done if rate and total is not None else None
        return Moved(self._done, total, self._is_estimate, rate, left)

    def elapsed(self, now: float) -> float | None:
        """Returns the seconds since the subject began; None while it waits."""
        return None if self.began is None else now - self.began
