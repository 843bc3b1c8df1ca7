"""Decides how long to wait before another try, and when to give up.

Delays double from half a second up to 30 s. Each wait lasts a random part of its delay, at least half of it. So seven
tries take 16 to 32 s, which is longer than the restart of a registry. After an answer 429, delays double from 5 s,
because quotas apply per minute. If a server sends Retry-After, imgtool waits for that time instead. The clock, the
sleep and the random numbers are parameters, so that tests need not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from training_imgtool.base.errors import ImgtoolError, TemporaryError

_TIMES = ("no time", "once", "twice", "three times", "four times", "five times", "six times", "seven times")


class PassingError(Exception):
    """A try failed, and another try may succeed; `Retry` decides whether to try again.

    Args:
        reason: what happened, as a text that follows the host's name, such as `answered 503`.
        retry_after: seconds that the server asks to wait, or None.
        final: the error to raise when no tries are left, or None for a TemporaryError.
        tries: a lower limit on tries than the policy's, or None.
        status: the status of the answer, or 0.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after: float | None = None,
        final: ImgtoolError | None = None,
        tries: int | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.final = final
        self.tries = tries
        self.status = status


class Attempt:
    """One pass through the body of a loop over `Retry.attempts`. After a PassingError, the loop continues.

    Attributes:
        number: the attempt's number, from 0.
        error: the PassingError that ended the attempt.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.error: PassingError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, PassingError) else None
        return self.error is not None


def _dice() -> float:
    from random import random

    return random()  # noqa: S311 nobody gains by guessing it


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How many times to try, and how long to wait.

    Attributes:
        tries: the number of tries, including the first.
        base: the longest wait in seconds before the second try; it doubles for each further try.
        quota_base: the same after a 429.
        cap: the longest wait in seconds without a Retry-After.
        patience: seconds of waiting in all; the operation fails at once if a server asks for more.
        total: seconds for one operation, including transfers.
        random: returns a number in [0, 1).
    """

    tries: int = 7
    base: float = 0.5
    quota_base: float = 5.0
    cap: float = 30.0
    patience: float = 300.0
    total: float = 3600.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = _dice

    def attempts(self, who: str, notice: Callable[[str], None] = lambda _: None) -> Iterator[Attempt]:
        """Yields attempts until one ends without a PassingError.

            for attempt in retry.attempts("HOST", notice):
                with attempt:
                    answer = ask()

        Args:
            who: the host, with which each message begins.
            notice: receives a text for each wait.

        Raises:
            TemporaryError: the tries, the patience or the time ran out.
            ImgtoolError: PassingError.final.
        """
        began = self.clock()
        waited = 0.0
        for number in range(self.tries):
            attempt = Attempt(number)
            yield attempt
            error = attempt.error
            if error is None:
                return
            wait = self._wait(number, error)
            spent = self.clock() - began
            if number + 1 >= min(self.tries, error.tries or self.tries) or spent >= self.total:
                raise _given_up(who, error, number + 1, spent) from error
            if waited + wait > min(self.patience, self.total - spent):
                raise _too_long(who, error, wait) from error
            notice(f"{who} {error.reason}; trying again in {wait:.1f} s (try {number + 2} of {self.tries})")
            self.sleep(wait)
            waited += wait

    def check_time(self, began: float, doing: str) -> None:
        """Raises TemporaryError if an operation that began at the time `began` (by `clock`) has used up its time."""
        if self.clock() - began > self.total:
            raise TemporaryError(
                f"{doing}: not done within {self.total:.0f} s", hint="the connection to the server is too slow"
            )

    def _wait(self, number: int, error: PassingError) -> float:
        if error.retry_after is not None:
            return error.retry_after
        base = self.quota_base if error.status == 429 else self.base
        return float(min(self.cap, base * 2**number) * (0.5 + self.random() / 2))


def retry_after(value: str | None, now: float) -> float | None:
    """Converts a Retry-After header, a number or an HTTP date, to seconds from now; None if missing or unreadable.

    Args:
        value: the header's value.
        now: the wall clock, in seconds since 1970.
    """
    text = (value or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:12])
    from email.utils import parsedate_to_datetime  # imported late: `random` takes 2 ms, and most runs need none

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _given_up(who: str, error: PassingError, tries: int, seconds: float) -> ImgtoolError:
    if error.final is not None:
        return error.final
    times = _TIMES[tries] if tries < len(_TIMES) else f"{tries} times"
    ending = "" if tries == 1 else f" {times} in {seconds:.0f} s"
    return TemporaryError(f"{who} {error.reason}{ending}", hint="run the same command again later")


def _too_long(who: str, error: PassingError, wait: float) -> ImgtoolError:
    return TemporaryError(
        f"{who} {error.reason} and asks to wait {wait:.0f} s, which is too long",
        hint="run the same command again after that time",
    )
