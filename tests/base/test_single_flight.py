from __future__ import annotations

import threading
import time

import pytest

from training_imgtool.base.threads import SingleFlight


def test_one_does_it_and_the_others_wait() -> None:
    once: SingleFlight[int] = SingleFlight()
    calls: list[int] = []
    results: list[int] = []

    def work() -> int:
        calls.append(1)
        time.sleep(0.05)
        return 7

    threads = [threading.Thread(target=lambda: results.append(once.do("key", work))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (len(calls), results) == (1, [7] * 10)
    assert once.do("other", lambda: 8) == 8


def test_a_failure_is_forgotten() -> None:
    once: SingleFlight[int] = SingleFlight()

    def fail() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            once.do("key", fail)
    assert once.do("key", lambda: 1) == 1
    assert once.do("key", fail) == 1
    once.forget("key")
    assert once.do("key", lambda: 2) == 2


def test_those_who_wait_share_the_failure() -> None:
    once: SingleFlight[int] = SingleFlight()
    began, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def fail() -> int:
        began.set()
        go.wait(5)
        raise ValueError("no")

    def ask() -> None:
        try:
            once.do("key", fail)
        except ValueError as error:
            errors.append(error)

    first = threading.Thread(target=ask)
    first.start()
    began.wait(5)
    second = threading.Thread(target=ask)
    second.start()
    time.sleep(0.05)
    go.set()
    first.join(5)
    second.join(5)
    assert [str(error) for error in errors] == ["no", "no"]
