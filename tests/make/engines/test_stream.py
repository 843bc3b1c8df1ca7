"""A long request followed from another thread: its end, its failures, and being stopped at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.make.engines.stream import follow


class Scripted:
    """A request that yields `events`; an exception among them is raised, None waits until the request is aborted."""

    def __init__(self, *events: Any) -> None:
        self.scripted = events
        self.aborted = threading.Event()
        self.closed = threading.Event()

    def events(self) -> Iterable[dict[str, Any]]:
        for event in self.scripted:
            if isinstance(event, BaseException):
                raise event
            if event is None:
                self.aborted.wait(20)
                return
            yield event

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.closed.set()


def followed(request: Scripted, *, stopped: threading.Event | None = None, answers: bool = True) -> Iterator[Any]:
    return follow(
        request,
        where=lambda: "worker: RUN make",
        stopped=stopped or threading.Event(),
        answers=lambda: answers,
        silence_seconds=0.3,
    )


def test_events_come_in_order_and_the_connection_is_closed() -> None:
    request = Scripted(*({"n": number} for number in range(5000)))
    assert [event["n"] for event in followed(request)] == list(range(5000))
    assert request.closed.is_set()


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("a mistake")])
def test_what_the_request_raises_is_raised_here(error: Exception) -> None:
    request = Scripted({"n": 1}, error)
    with pytest.raises(type(error)) as caught:
        list(followed(request))
    assert caught.value is error
    assert request.closed.is_set()


def test_closing_in_the_middle_aborts_and_waits_for_the_connection() -> None:
    request = Scripted({"n": 1}, None)
    with closing(followed(request)) as events:  # type: ignore[type-var]
        assert next(events) == {"n": 1}
    assert request.aborted.is_set()
    assert request.closed.is_set()


def test_an_exception_of_the_reader_aborts_even_while_events_pile_up() -> None:
    request = Scripted(*({"n": number} for number in range(100_000)))

    def read() -> None:
        with closing(followed(request)) as events:  # type: ignore[type-var]
            next(events)
            time.sleep(0.3)  # the queue is full by now
            raise KeyError("the reader's own")

    with pytest.raises(KeyError):
        read()
    assert request.closed.is_set()


def test_another_thread_stops_it() -> None:
    stopped = threading.Event()
    threading.Timer(0.2, stopped.set).start()
    began = time.monotonic()
    with pytest.raises(EngineUnavailableError, match="worker: RUN make: stopped"):
        list(followed(Scripted(None), stopped=stopped))
    assert time.monotonic() - began < 10


def test_silence_is_fine_while_the_engine_answers() -> None:
    request = Scripted(None)
    threading.Timer(1.2, request.aborted.set).start()
    assert list(followed(request)) == []


def test_silence_of_an_engine_that_does_not_answer_is_the_end() -> None:
    with pytest.raises(EngineUnavailableError, match="worker: RUN make: the engine stopped answering"):
        list(followed(Scripted(None), answers=False))
