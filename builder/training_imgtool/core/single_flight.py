"""Doing each thing once, however many threads ask: the first does it, the others wait for its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Results by key. A failure is forgotten, so that a later caller tries again; those who waited share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, Future[T]] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """The result of `work` for `key`, made now by this thread, or before or meanwhile by another."""
        with self._lock:
            doing = self._results.get(key)
            mine = doing is None
            if doing is None:
                doing = self._results[key] = Future()
        if not mine:
            return doing.result()
        try:
            result = work()
        except BaseException as error:
            with self._lock:
                del self._results[key]
            doing.set_exception(error)
            raise
        doing.set_result(result)
        return result

    def forget(self, key: Hashable) -> None:
        """Lets the next caller do it again."""
        with self._lock:
            self._results.pop(key, None)
