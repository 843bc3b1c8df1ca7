"""Go's `filepath.Match`, which COPY's wildcards and `.dockerignore` are defined by."""

from __future__ import annotations

import re

from training_imgtool.core.errors import InputError


class PatternError(InputError):
    """A pattern that Go calls malformed: an open bracket, an empty range, a lone backslash."""


def has_wildcards(pattern: str) -> bool:
    """Returns whether COPY looks for matches instead of one path: an unescaped `*`, `?` or `[`."""
    return re.search(r"(?<!\\)(?:\\\\)*[*?\[]", pattern) is not None


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Translates the pattern into a regular expression for whole paths; raises PatternError.

    `*` and `?` stop at `/`; a class may match it, as in Go. `**` is the same as `*`. As in Go, what follows a star is
    taken where it first fits and, unless the pattern ends with it, never sought again: the time is linear in stars.
    """
    result, closing = "", ""
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            is_last = "*" not in pattern[at:]
            result += f"{closing}{'[^/]*' if is_last else '(?>[^/]*?'}"
            closing = "" if is_last else ")"
        elif character == "?":
            result += "[^/]"
        elif character == "[":
            text, at = _class(pattern, at)
            result += text
        elif character == "\\":
            literal, at = _literal(pattern, at - 1)
            result += re.escape(literal)
        else:
            result += re.escape(character)
    return re.compile(rf"{result}\Z", re.DOTALL)


def matches(pattern: str, path: str) -> bool:
    """Returns whether the whole of `path` matches; raises PatternError."""
    return compile_pattern(pattern).match(path) is not None


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Reads the class whose `[` lies before `at`; returns it, and where it ends."""
    negated = pattern.startswith("^", at)
    at += negated
    ranges = ""
    while not (ranges and pattern.startswith("]", at)):
        low, at = _literal(pattern, at, in_class=True)
        high = low
        if pattern.startswith("-", at):
            high, at = _literal(pattern, at + 1, in_class=True)
        # A range that is the wrong way round matches nothing in Go; NUL is in no path.
        ranges += f"{re.escape(low)}-{re.escape(high)}" if low <= high else r"\0"
    return f"[{'^' if negated else ''}{ranges}]", at + 1


def _literal(pattern: str, at: int, *, in_class: bool = False) -> tuple[str, int]:
    """Reads one character, perhaps escaped; returns it, and where the next begins."""
    if at >= len(pattern) or (in_class and pattern[at] in "-]"):
        raise PatternError(f"{pattern!r} is not a pattern: a bracket is not closed, or a range is empty")
    if pattern[at] == "\\":
        at += 1
        if at >= len(pattern):
            raise PatternError(f"{pattern!r} is not a pattern: it ends in a backslash")
    return pattern[at], at + 1
