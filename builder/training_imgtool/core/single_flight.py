"""Runs a call once for all threads that want its result: the first runs it, the others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Results by key. Waiting threads share a failure; a later caller tries again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, Future[T]] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """Returns the result of `work` for `key`; runs `work` unless another thread did or does."""
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

    def has(self, key: Hashable) -> bool:
        """Whether some work for `key` has not failed."""
        with self._lock:
            return key in self._results

    def forget(self, key: Hashable) -> None:
        """Makes the next caller run its work again."""
        with self._lock:
            self._results.pop(key, None)
