"""What is said about samples: medians, spreads, and ratios within rounds.

The machine is shared and slows down and speeds up, so absolute times of different rounds do not compare. Every
contender runs once per round, one after the other; a ratio is taken within its round, and the median of the rounds'
ratios is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Ours over theirs, round by round; rounds where either is missing (NaN) or theirs is 0 give nothing."""
    pairs = zip(ours, theirs, strict=True)
    return tuple(a / b for a, b in pairs if a == a and b == b and b > 0)


def middle(values: Sequence[float]) -> float | None:
    """The median, without missing values (NaN); None of nothing."""
    present = [value for value in values if value == value]
    return median(present) if present else None


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """The first and third quartile; None of fewer than two values."""
    present = [value for value in values if value == value]
    if len(present) < 2:
        return None
    low, _, high = quantiles(present, n=4, method="inclusive")
    return low, high


def column(rounds: Sequence[Mapping[str, float]], name: str) -> tuple[float, ...]:
    """One contender's values over the rounds, NaN where it has none."""
    return tuple(row.get(name, float("nan")) for row in rounds)
