"""Runs tasks in threads and waits for all of them; runs a call once for all threads that need its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from training_imgtool.base.errors import ImgtoolError

K = TypeVar("K")
T = TypeVar("T")

SEVERITY_ORDER = (70, 10, 9, 7, 6, 5, 4, 8, 3, 2)  # exit codes, the most severe first


def run_all(tasks: Mapping[K, Callable[[], T]], *, most: int = 8) -> dict[K, T]:
    """Calls every task in a thread, `most` at a time; returns results by key, in the tasks' order.

    A failure does not stop the other tasks. Raises the most severe failure, whose details name the other failures. When
    an exception such as Cancelled interrupts the calling thread, no further task begins, and the call ends at once.
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


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process alive."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def worst_failure(failures: Mapping[K, BaseException]) -> BaseException:
    """Returns the failure that decides the exit code; the details of this failure name the other failures."""
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


class SingleFlight(Generic[T]):
    """Results by key. If the work fails, all waiting threads get the failure; a later caller tries again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, Future[T]] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """Returns the result for `key`; runs `work` unless another thread has run it or is running it."""
        with self._lock:
            future = self._results.get(key)
            is_first = future is None
            if future is None:
                future = self._results[key] = Future()
        if not is_first:
            return future.result()
        try:
            result = work()
        except BaseException as error:
            with self._lock:
                del self._results[key]
            future.set_exception(error)
            raise
        future.set_result(result)
        return result

    def forget(self, key: Hashable) -> None:
        """Deletes the result for `key`, so that the next caller runs its work again."""
        with self._lock:
            self._results.pop(key, None)
