"""What builders refuse in an instruction while they read it: repeated flags, signals, durations, JSON forms."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.substitution import fields

if TYPE_CHECKING:
    from decimal import Decimal

    from training_imgtool.dockerfile.parse import Instruction

_HEALTH_TIMES = frozenset({"interval", "timeout", "start-period", "start-interval"})
_REPEATED_FLAGS = frozenset({"exclude", "mount"})
_FLAGS_WITH_VALUE = frozenset({"chmod", "chown", "exclude", "from", "mount", "platform"})

_SIGNAL = (
    r"(?:SIG)?(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS"
    r"|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ"
    r"|RTM(?:IN(?:\+(?:[1-9]|1[0-5]))?|AX(?:-(?:[1-9]|1[0-4]))?))"
)
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION = rf"\+?(?:{_PART})+"
_US, _MS, _S = 10**3, 10**6, 10**9
_UNITS = {"ns": 1, "us": _US, "µs": _US, "μs": _US, "ms": _MS, "s": _S, "m": 60 * _S, "h": 3600 * _S}
_SHORTEST = _MS  # nanoseconds; engines refuse a shorter duration of a health check


def check_values(instruction: Instruction) -> None:
    """Refuses flags and values that no engine takes; raises InputError."""
    names = [flag for flag, _ in instruction.flags if flag not in _REPEATED_FLAGS]
    for flag in names:
        if names.count(flag) > 1:
            raise InputError(f"{instruction.name}: --{flag} is given twice")
    for flag, value in instruction.flags:
        if flag != flag.lower():
            raise InputError(f"{instruction.name}: --{flag}: the names of flags are in lower case")
        if value is None and flag in _FLAGS_WITH_VALUE:
            raise InputError(f"{instruction.name}: --{flag} has no value: expected --{flag}=VALUE")
    check = {"HEALTHCHECK": _check_healthcheck, "STOPSIGNAL": _check_stop_signal, "VOLUME": _check_volume}
    if instruction.name in check:
        check[instruction.name](instruction)


def _check_healthcheck(instruction: Instruction) -> None:
    kind, *rest = fields(instruction.text, 2)
    if kind.upper() not in {"NONE", "CMD"}:
        raise InputError("HEALTHCHECK: expected NONE or CMD")
    if kind.upper() == "NONE" and (rest or instruction.flags):
        raise InputError("HEALTHCHECK NONE takes neither flags nor arguments")
    if kind.upper() == "CMD" and (not rest or json_words(rest[0]) == ()):
        raise InputError("HEALTHCHECK CMD needs a command")
    retries = instruction.flag("retries")
    if retries is not None and not re.fullmatch(r"\+?0*[1-9]\d{0,8}", retries):
        raise InputError(f"HEALTHCHECK --retries={retries}: expected a number from 1 on")
    for flag, value in instruction.flags:
        duration = nanoseconds(value or "") if flag in _HEALTH_TIMES else _SHORTEST
        if duration is None or duration < _SHORTEST:
            raise InputError(f"HEALTHCHECK --{flag}={value or ''}: expected a duration from 1ms on, such as 30s")


def _check_stop_signal(instruction: Instruction) -> None:
    text = instruction.text
    if not set(text) & set("$'\"\\") and not is_signal(text):
        raise InputError(
            f"STOPSIGNAL {text}: no signal of Linux", hint="expected a name such as SIGTERM, or a number from 1 on"
        )


def _check_volume(instruction: Instruction) -> None:
    if not instruction.words or not all(word.strip() for word in instruction.words):
        raise InputError("VOLUME: an empty path")


def json_words(rest: str) -> tuple[str, ...] | None:
    """Returns the JSON form's words; None when it is a shell form. An array of other things than text is an error."""
    if not rest.startswith("["):
        return None
    try:
        words, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if rest[end:].strip():
        raise InputError(
            f"{rest[:60]}: a JSON form with text after it: Docker 20.10 drops the text, BuildKit takes it for shell",
            hint="begin a shell test with `test` instead of `[`",
        )
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{rest[:60]}: a JSON form holds only strings")
    return tuple(words)


def is_signal(text: str) -> bool:
    """Returns whether engines take `text` for a signal: a number from 1 on, or a name (moby/sys `signal`)."""
    return int(text) > 0 if text.isascii() and text.isdecimal() else re.fullmatch(_SIGNAL, text.upper()) is not None


def nanoseconds(text: str) -> Decimal | None:
    """Returns Go's `time.ParseDuration`, such as `1m30s`; None for what is none, and for what is negative."""
    from decimal import Decimal

    if text in {"0", "+0"}:
        return Decimal(0)
    if not re.fullmatch(_DURATION, text):
        return None
    return sum((Decimal(number) * _UNITS[unit] for number, unit in re.findall(_PART, text)), Decimal(0))
