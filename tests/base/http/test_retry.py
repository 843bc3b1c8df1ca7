from __future__ import annotations

from email.utils import formatdate

import pytest

from tests.oci.registry.support import Clock, quick_retry
from training_imgtool.base.errors import RegistryRefusedError, TemporaryError, VerificationError
from training_imgtool.base.http.retry import PassingError, Retry, retry_after


class _Work:
    """Fails with each of `errors` in turn, then returns how often it was called."""

    def __init__(self, *errors: Exception, takes: float = 0.0, clock: Clock | None = None) -> None:
        self.errors = list(errors)
        self.calls: list[int] = []
        self.takes = takes
        self.clock = clock

    def __call__(self, number: int) -> int:
        self.calls.append(number)
        if self.clock:
            self.clock.now += self.takes
        if self.errors:
            raise self.errors.pop(0)
        return len(self.calls)


def _run(retry: Retry, work: _Work, notes: list[str] | None = None) -> int:
    for attempt in retry.attempts("registry.example", (notes if notes is not None else []).append):
        with attempt:
            result = work(attempt.number)
    return result


def test_waits_double_up_to_the_cap() -> None:
    clock = Clock()
    work = _Work(*(PassingError("answered 503") for _ in range(9)))
    assert _run(quick_retry(clock, tries=10, cap=4.0), work) == 10
    assert clock.slept == [0.5, 1, 2, 4, 4, 4, 4, 4, 4]


def test_a_wait_is_at_least_half_of_what_it_may_be() -> None:
    clock = Clock()
    retry = Retry(clock=clock, sleep=clock.sleep, random=iter([0.0, 0.5, 0.25]).__next__)
    _run(retry, _Work(*(PassingError("x") for _ in range(3))))
    assert clock.slept == [0.25, 0.75, 1.25]


def test_the_shortest_waits_outlast_a_restart_of_15_seconds() -> None:
    clock = Clock()
    retry = Retry(clock=clock, sleep=clock.sleep, random=lambda: 0.0)
    with pytest.raises(TemporaryError, match="seven times in 16 s"):
        _run(retry, _Work(*(PassingError("refuses connections now") for _ in range(9))))


def test_a_quota_per_minute_is_waited_for() -> None:
    clock = Clock()
    work = _Work(*(PassingError("answered 429", status=429) for _ in range(9)))
    with pytest.raises(TemporaryError):
        _run(Retry(clock=clock, sleep=clock.sleep, random=lambda: 0.0), work)
    assert clock.slept == [2.5, 5, 10, 15, 15, 15]


def test_seven_tries_and_a_message() -> None:
    clock = Clock()
    work = _Work(*(PassingError("answered 503") for _ in range(9)), takes=1.0, clock=clock)
    with pytest.raises(TemporaryError) as caught:
        _run(quick_retry(clock), work)
    assert str(caught.value) == "registry.example answered 503 seven times in 38 s"
    assert caught.value.exit_code == 8
    assert caught.value.retryable
    assert work.calls == [0, 1, 2, 3, 4, 5, 6]


def test_each_wait_is_told() -> None:
    notes: list[str] = []
    _run(quick_retry(), _Work(PassingError("answered 429", retry_after=7.0)), notes)
    assert notes == ["registry.example answered 429; trying again in 7.0 s (try 2 of 7)"]


def test_other_errors_are_not_tried_again() -> None:
    work = _Work(RegistryRefusedError("no"))
    with pytest.raises(RegistryRefusedError):
        _run(quick_retry(), work)
    assert work.calls == [0]


def test_an_error_may_have_fewer_tries_and_an_end_of_its_own() -> None:
    wrong = VerificationError("corrupted")
    work = _Work(*(PassingError("x", final=wrong, tries=2) for _ in range(5)))
    with pytest.raises(VerificationError) as caught:
        _run(quick_retry(), work)
    assert caught.value is wrong
    assert work.calls == [0, 1]


def test_retry_after_counts_up_to_the_patience() -> None:
    clock = Clock()
    work = _Work(PassingError("x", retry_after=200.0), PassingError("answered 429", retry_after=101.0))
    with pytest.raises(TemporaryError, match="answered 429 and asks to wait 101 s"):
        _run(quick_retry(clock), work)
    assert clock.slept == [200.0]


def test_a_try_that_took_the_whole_time_is_the_last() -> None:
    clock = Clock()
    work = _Work(*(PassingError("sent nothing for too long") for _ in range(9)), takes=2000.0, clock=clock)
    with pytest.raises(TemporaryError, match="sent nothing for too long twice in 4000 s"):
        _run(quick_retry(clock), work)


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("2", 2.0),
        (" 120 ", 120.0),
        ("86400", 86400.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("soon", None),
        ("-3", None),
        ("1.5", None),
        ("\u0664", None),
        ("9" * 400, 999_999_999_999.0),
        ("Mon, 99 Foo 2020 99:99:99 GMT", None),
    ],
)
def test_retry_after_header(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds
