"""Work that other threads do: a task with its result, and a pool of threads.

The standard library's `concurrent.futures` takes 3 ms to load, most of it for logging. A thread of this pool ends when
there is nothing left to do, so that one that is forgotten keeps no process from ending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class GivenUpError(Exception):
    """The task never began: its pool was shut down before."""


class Task(Generic[T]):
    """A result that is not there yet. Whoever makes it calls `end`, once; any number of threads wait for it."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None

    def end(self, *result: T, error: BaseException | None = None) -> None:
        """Gives the result, or the failure, to all who wait."""
        self._results += result
        self._error = error
        self._ended.set()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def error(self) -> BaseException | None:
        """Waits for the end; the failure, None for none."""
        self._ended.wait()
        return self._error

    def result(self) -> T:
        """Waits for the result; raises the failure, and GivenUpError when there will be none."""
        error = self.error()
        if error is not None:
            raise error
        return self._results[0]


class Pool:
    """Runs tasks in the order they come, each in a thread; any thread may hand them in.

    Args:
        most: so many at a time.
        name: of the threads, with a number.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], Any], Task[Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._begun = 0
        self._closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Task[T]:
        """Has `work` called with the arguments; raises RuntimeError after `shutdown`."""
        task: Task[T] = Task()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool was shut down")
            if len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=f"{self._name}_{self._begun}")
                self._begun += 1
                thread.start()  # it finds what is appended here, since it looks under the lock
                self._threads.add(thread)
            self._waiting.append((partial(work, *args, **kwargs), task))
        return task

    def shutdown(self, *, wait: bool = True, cancel: bool = False) -> None:
        """Takes no more tasks. With `wait`, all have ended when this returns; with `cancel`, those waiting never begin.

        Whoever waits for one that never begins gets GivenUpError.
        """
        with self._lock:
            self._closed = True
            given_up = list(self._waiting) if cancel else []
            if cancel:
                self._waiting.clear()
            threads = tuple(self._threads)
        for _, task in given_up:
            task.end(error=GivenUpError("it was given up before it began"))
        for thread in threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
                work, task = self._waiting.popleft()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                task.end(error=error)
            else:
                task.end(result)
            del work, task
