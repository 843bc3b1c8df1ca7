"""Runs tasks in threads, waits for all of them, and raises the most severe failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from training_imgtool.core.errors import ImgtoolError

K = TypeVar("K")
T = TypeVar("T")

SEVERITY_ORDER = (70, 10, 9, 7, 6, 5, 4, 8, 3, 2)  # exit codes, the most severe first


def run_all(tasks: Mapping[K, Callable[[], T]], *, most: int = 8) -> dict[K, T]:
    """Calls every task in a thread, `most` at a time; returns results by key, in the tasks' order.

    A failure does not stop the other tasks. Raises the most severe failure, whose details name the others. When an
    exception such as Cancelled interrupts the calling thread, no further task begins, and the call returns at once.
    """
    pool = ThreadPoolExecutor(min(most, max(1, len(tasks))), thread_name_prefix="imgtool")
    try:
        begun = {key: pool.submit(task) for key, task in tasks.items()}
        failures = {key: error for key, task in begun.items() if (error := task.exception()) is not None}
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    if failures:
        raise worst_failure(failures)
    return {key: task.result() for key, task in begun.items()}


def worst_failure(failures: Mapping[K, BaseException]) -> BaseException:
    """Returns the failure that decides the exit code; its details name the others."""
    distinct: dict[int, tuple[K, BaseException]] = {}
    for key, error in failures.items():
        distinct.setdefault(id(error), (key, error))
    ordered = sorted(distinct.values(), key=lambda pair: _gravity(pair[1]))
    worst = ordered[0][1]
    if isinstance(worst, ImgtoolError) and len(ordered) > 1:
        worst.details += tuple(f"also failed, {key}: {str(error).splitlines()[0]}" for key, error in ordered[1:])
    return worst


def _gravity(error: BaseException) -> int:
    code = error.exit_code if isinstance(error, ImgtoolError) else SEVERITY_ORDER[0]
    return SEVERITY_ORDER.index(code) if code in SEVERITY_ORDER else 0
