"""Values that builders check while they read a Dockerfile: signals and durations."""

from __future__ import annotations

import re
from decimal import Decimal

_SIGNAL = re.compile(
    r"(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS"
    r"|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ"
    r"|RTM(?:IN(?:\+(?:[1-9]|1[0-5]))?|AX(?:-(?:[1-9]|1[0-4]))?))"
)
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"\+?(?:{_PART})+\Z")
_US, _MS, _S = 10**3, 10**6, 10**9
_UNITS = {"ns": 1, "us": _US, "µs": _US, "μs": _US, "ms": _MS, "s": _S, "m": 60 * _S, "h": 3600 * _S}
SHORTEST = _MS
"""Nanoseconds; engines refuse a health check's duration below it."""


def is_signal(text: str) -> bool:
    """Whether engines take `text` for a signal: a number from 1 on, or a name (moby/sys `signal`)."""
    return int(text) > 0 if text.isascii() and text.isdecimal() else _SIGNAL.fullmatch(text.upper()) is not None


def nanoseconds(text: str) -> Decimal | None:
    """Go's `time.ParseDuration`, such as `1m30s`; None for what is none, and for what is negative."""
    if text in {"0", "+0"}:
        return Decimal(0)
    if not _DURATION.match(text):
        return None
    return sum((Decimal(number) * _UNITS[unit] for number, unit in re.findall(_PART, text)), Decimal(0))
