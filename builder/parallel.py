"""Runs a few things side by side: every one ends, then the worst failure is raised with the others named."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from builder.errors import ImgtoolError

K = TypeVar("K")
T = TypeVar("T")

GRAVEST_FIRST = (70, 10, 9, 7, 6, 5, 4, 8, 3, 2)  # which code a run with several failures ends with


def run_all(tasks: Mapping[K, Callable[[], T]], *, most: int = 8) -> dict[K, T]:
    """Calls every task in a thread of its own, `most` at a time; returns results by key, in the tasks' order.

    A failure does not stop the others. Raises the gravest failure; the others become lines of its details.
    When the calling thread is interrupted, what has not begun never does, and nobody waits for the rest.
    """
    left = deque(tasks.items())
    results: dict[K, T] = {}
    failures: dict[K, BaseException] = {}

    def work() -> None:
        while left:
            try:
                key, task = left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                results[key] = task()
            except BaseException as error:  # noqa: BLE001 - it is raised, or named, by the calling thread
                failures[key] = error

    # Not the standard library's pool: loading it takes 3 ms, most of it for logging.
    threads = [threading.Thread(target=work, name=f"imgtool_{number}") for number in range(min(most, len(tasks)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        left.clear()
        raise
    if failures:
        raise gravest({key: failures[key] for key in tasks if key in failures})
    return {key: results[key] for key in tasks}


def gravest(failures: Mapping[K, BaseException]) -> BaseException:
    """The failure that decides the exit code; the others are named in its details."""
    distinct: dict[int, tuple[K, BaseException]] = {}
    for key, error in failures.items():
        distinct.setdefault(id(error), (key, error))
    ordered = sorted(distinct.values(), key=lambda pair: _gravity(pair[1]))
    worst = ordered[0][1]
    if isinstance(worst, ImgtoolError) and len(ordered) > 1:
        worst.details += tuple(f"also failed, {key}: {str(error).splitlines()[0]}" for key, error in ordered[1:])
    return worst


def _gravity(error: BaseException) -> int:
    code = error.exit_code if isinstance(error, ImgtoolError) else GRAVEST_FIRST[0]
    return GRAVEST_FIRST.index(code) if code in GRAVEST_FIRST else 0
