"""Several failures: the gravest decides, the others are named."""

from __future__ import annotations

import threading

import pytest

from builder.errors import BuildFailedError, CredentialsError, ImgtoolError, TemporaryError
from builder.parallel import run_all


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


def test_one_error_shared_by_several_tasks_is_told_once() -> None:
    shared = BuildFailedError("the packages stage failed")

    def fail() -> None:
        raise shared

    with pytest.raises(BuildFailedError) as caught:
        run_all({"master": fail, "worker": fail})
    assert caught.value.details == ()
