"""Measures what a test limits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Peak:
    """The most bytes that Python's objects had at once, known when its block has ended."""

    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures what a block allocates in this process."""
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
