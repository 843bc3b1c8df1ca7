"""Follows one long request to an engine: yields the answer, can be stopped, and detects that the engine is gone.

The request runs in a thread of its own, so the thread that follows it can always be interrupted: by a signal, by
`close()` of the engine, or because the engine no longer answers. docker-py does not offer any of these three ways.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from training_imgtool.base.errors import EngineUnavailableError

Event = dict[str, Any]

_LOOK = 0.2  # seconds between looks at whether to stop
_END = object()
_QUEUED = 1000
_JOIN_SECONDS = 2.0


class Request(Protocol):
    """One request that an engine answers with a stream of events."""

    def events(self) -> Iterable[Event]:
        """Sends the request and yields the answer's events."""

    def abort(self) -> None:
        """Ends the request from another thread; the engine sees the connection close."""

    def close(self) -> None:
        """Frees the connection. The thread that ran `events` calls this method."""


class Running:
    """Counts the running requests to one engine, and can end all of them. Thread-safe."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._idle = threading.Condition()
        self._count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a request as running while the block runs."""
        with self._idle:
            self._count += 1
        try:
            yield
        finally:
            with self._idle:
                self._count -= 1
                self._idle.notify_all()

    def stop(self, seconds: float) -> None:
        """Ends every request, and waits at most `seconds` until all of them have freed their resources."""
        self.stopped.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._count, seconds)


def follow(
    request: Request,
    *,
    where: Callable[[], str],
    stopped: threading.Event,
    answers: Callable[[], bool],
    silence_seconds: float,
) -> Generator[Event, None, None]:
    """Yields the request's events; closing the generator, or setting `stopped`, aborts the request.

    Args:
        request: what to send.
        where: the engine's current work, for messages.
        stopped: set by another thread to end every request of the engine.
        answers: checks whether the engine still answers. `follow` calls it after `silence_seconds` without an event,
            and gives the request up after two failed checks.
        silence_seconds: how long to wait for an event before a check.

    Raises EngineUnavailableError when stopped or when the engine no longer answers, and the errors of the request
    or its body.
    """
    events: queue.Queue[Any] = queue.Queue(_QUEUED)
    done = threading.Event()
    worker = threading.Thread(target=_run, args=(request, events, done), name="imgtool-engine", daemon=True)
    worker.start()
    try:
        for item in _receive(events, stopped, answers, silence_seconds):
            if isinstance(item, str):
                raise EngineUnavailableError(f"{where()}: {item}")
            yield item
    finally:
        done.set()
        request.abort()
        worker.join(_JOIN_SECONDS)


def _run(request: Request, events: queue.Queue[Any], done: threading.Event) -> None:
    def put(item: object) -> None:
        while not done.is_set():
            with suppress(queue.Full):
                events.put(item, timeout=_LOOK)
                return

    try:
        for event in request.events():
            put(event)
            if done.is_set():
                return
        put(_END)
    except BaseException as error:  # noqa: BLE001 - the thread that follows raises it
        put(error)
    finally:
        request.close()


def _receive(
    events: queue.Queue[Any], stopped: threading.Event, answers: Callable[[], bool], silence_seconds: float
) -> Iterator[Event | str]:
    """Yields the events; if they end early, yields a text with the reason."""
    heard = time.monotonic()
    silent = 0
    while True:
        if stopped.is_set():
            yield "stopped"
        try:
            item = events.get(timeout=_LOOK)
        except queue.Empty:
            if time.monotonic() - heard > silence_seconds:
                silent = 0 if answers() else silent + 1
                heard = time.monotonic() if silent == 0 else heard
                if silent == 2:
                    yield "the engine stopped answering"
            continue
        heard, silent = time.monotonic(), 0
        if item is _END:
            return
        if isinstance(item, BaseException):
            raise item
        yield item
