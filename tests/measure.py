"""Measures what a test limits."""

from __future__ import annotations

import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


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


def wait_with_peak(process: subprocess.Popen[bytes]) -> int:
    """Waits for a process; the most kilobytes it had, not ru_maxrss, which a process inherits from who starts it."""
    peak = 0
    while process.poll() is None:
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max(peak, next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")))
        time.sleep(0.02)
    return peak
