"""Several failures: the gravest decides, the others are named."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from itertools import pairwise

import pytest

from training_imgtool.base.errors import (
    BuildFailedError,
    CredentialsError,
    EngineUnavailableError,
    ImgtoolError,
    InputError,
    LocalFileError,
    RegistryRefusedError,
    TemporaryError,
    UsageError,
    VerificationError,
)
from training_imgtool.base.threads import run_all, worst_failure


def test_results_keep_the_order_of_the_tasks() -> None:
    first = threading.Event()

    def late() -> str:
        first.wait(5)
        return "a"

    def early() -> str:
        first.set()
        return "b"

    assert run_all({"late": late, "early": early}) == {"late": "a", "early": "b"}
    assert list(run_all({"late": late, "early": early})) == ["late", "early"]


def test_the_gravest_failure_is_raised_and_names_the_others() -> None:
    def fail(error: ImgtoolError) -> None:
        raise error

    ended = []
    with pytest.raises(CredentialsError) as caught:
        run_all(
            {
                "master": lambda: fail(TemporaryError("503 five times")),
                "worker": lambda: fail(CredentialsError("no login")),
                "ps": lambda: fail(BuildFailedError("RUN exited 7")),
                "evaluator": lambda: ended.append("evaluator"),
            }
        )
    assert ended == ["evaluator"]
    assert set(caught.value.details) == {"also failed, master: 503 five times", "also failed, ps: RUN exited 7"}


@pytest.mark.parametrize(
    ("worse", "better"),
    list(
        pairwise(
            (
                RuntimeError,
                VerificationError,
                LocalFileError,
                CredentialsError,
                RegistryRefusedError,
                EngineUnavailableError,
                BuildFailedError,
                TemporaryError,
                InputError,
                UsageError,
            )
        )
    ),
)
def test_the_order_of_severity(worse: type[Exception], better: type[Exception]) -> None:
    first, second = worse("worse"), better("better")
    assert worst_failure({"a": second, "b": first}) is first
    assert worst_failure({"a": first, "b": second}) is first


def test_one_error_shared_by_several_tasks_is_told_once() -> None:
    shared = BuildFailedError("the packages stage failed")

    def fail() -> None:
        raise shared

    with pytest.raises(BuildFailedError) as caught:
        run_all({"master": fail, "worker": fail})
    assert caught.value.details == ()


def test_no_more_at_a_time_than_said() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def task() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1

    assert run_all(dict.fromkeys(range(9), task), most=3) == dict.fromkeys(range(9))
    assert most[0] == 3
    assert run_all({}) == {}


def test_an_interrupt_leaves_what_has_not_begun_and_waits_for_nobody() -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    begun: list[int] = []
    go_on = threading.Event()

    def task(number: int) -> None:
        begun.append(number)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGUSR1)  # the kernel gives it to the main thread
        go_on.wait(10)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            run_all({number: partial(task, number) for number in range(6)}, most=2)
        assert not go_on.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("imgtool_"):
                thread.join(10)
    assert begun == [0, 1]
