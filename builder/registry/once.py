"""Doing each thing once, however many threads ask: the first does it, the others wait for its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Doing(Generic[T]):
    """Work that one thread does and others wait for. The standard library's takes 3 ms to load, most of it logging."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def end(self, *result: T, error: BaseException | None = None) -> None:
        self._result += result
        self._error = error
        self._ended.set()

    def result(self) -> T:
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]


class Once(Generic[T]):
    """Results by key. A failure is forgotten, so that a later caller tries again; those who waited share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, _Doing[T]] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """The result of `work` for `key`, made now by this thread, or before or meanwhile by another."""
        with self._lock:
            doing = self._results.get(key)
            mine = doing is None
            if doing is None:
                doing = self._results[key] = _Doing()
        if not mine:
            return doing.result()
        try:
            result = work()
        except BaseException as error:
            with self._lock:
                del self._results[key]
            doing.end(error=error)
            raise
        doing.end(result)
        return result

    def forget(self, key: Hashable) -> None:
        """Lets the next caller do it again."""
        with self._lock:
            self._results.pop(key, None)
