"""`.dockerignore` with Docker's own rules: moby/patternmatcher and its `ignorefile` package.

The last pattern that matches a path, or a folder above the path, decides whether the path is left out. As in BuildKit,
a folder that is left out is still searched when a `!` pattern could bring back something below it.
"""

from __future__ import annotations

import posixpath
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from training_imgtool.base.errors import InputError

_ESCAPED = frozenset(".+()$")
_LETTER = r"(?:[^\]\\-]|\\.)"
_VALID = re.compile(rf"(?:[^\[\\]|\\.|\[\^?(?:{_LETTER}(?:-{_LETTER})?)+\])*\Z", re.DOTALL)  # to Go's filepath.Match
_BELOW, _ANYTHING, _NAME = "(?:.*/)?", ".*", "[^/]*"  # what stars become
_STARS = re.compile("|".join(map(re.escape, (_BELOW, _ANYTHING, _NAME))))
_STEP = re.compile(rf"{_STARS.pattern}|\\.|\[\^?\]?(?:\\.|[^\]])*\]|.", re.DOTALL)
_FEW = 2  # stars; the time that `re` needs grows with the path's length to the power of this number


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    brings_back: bool  # the pattern began with `!`
    match: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one path, on which the decisions about the paths below it depend."""

    ignored: bool
    matched: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class DockerIgnore:
    """The patterns of one file, in order."""

    patterns: tuple[_Pattern, ...] = ()

    @property
    def brings_back(self) -> bool:
        """Whether any pattern begins with `!`."""
        return any(pattern.brings_back for pattern in self.patterns)

    def decide(self, path: str, parent: Verdict | None = None) -> Verdict:
        """Decides whether `path` (relative, slashes) is left out.

        Args:
            path: the path.
            parent: the verdict on its folder; None at the top.
        """
        ignored = False
        results = []
        for number, pattern in enumerate(self.patterns):
            match = parent.matched[number] if parent is not None else False
            if not match and pattern.brings_back == ignored:
                match = bool(pattern.match(path))
            if match:
                ignored = not pattern.brings_back
            results.append(match)
        return Verdict(ignored, tuple(results))


def parse_dockerignore(text: str, *, file: str = ".dockerignore") -> DockerIgnore:
    """Parses the file's text; raises InputError that begins with `file:line` for a malformed pattern."""
    patterns = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        pattern = "" if line.startswith("#") else line.strip()
        if not pattern:
            continue
        brings_back = pattern.startswith("!")
        pattern = pattern.removeprefix("!").strip()
        pattern = _clean(pattern) if pattern else ""
        if brings_back and pattern in {"", "/"}:
            raise InputError(f"{file}:{number}: '!' without a pattern")
        if _special(pattern) and any(character in pattern for character in "|{}"):
            raise InputError(
                f"{file}:{number}: {pattern!r}: Docker reads |, {{ and }} beside a wildcard as a regular expression",
                hint="write ? in place of these characters",
            )
        try:
            matcher = _matcher(pattern) if _VALID.match(pattern) else None
        except re.error:
            matcher = None
        if matcher is None:
            raise InputError(f"{file}:{number}: {pattern!r} is not a pattern", hint="close the bracket")
        patterns.append(_Pattern(pattern, brings_back, matcher))
    return DockerIgnore(tuple(patterns))


def _clean(pattern: str) -> str:
    """Cleans a path like Go's `filepath.Clean`, and removes a leading slash and outer blanks: `data /` names `data`."""
    cleaned = posixpath.normpath(pattern)
    cleaned = "/" + cleaned.lstrip("/") if cleaned.startswith("/") else cleaned
    return (cleaned[1:] if len(cleaned) > 1 and cleaned.startswith("/") else cleaned).strip()


def _matcher(pattern: str) -> Callable[[str], object]:
    """Returns a function that tells whether a path matches, in bounded time for every pattern."""
    regex = _translate(pattern)
    if len(_STARS.findall(regex)) <= _FEW:
        return _compile(regex).match
    steps = tuple(_STEP.findall(regex.removesuffix(r"\Z")))
    for step in {*steps}:
        _compile(step)  # an invalid step is an error of the file, not of the path that meets it
    return partial(_match_steps, steps)


def _match_steps(steps: tuple[str, ...], path: str) -> bool:
    """Matches step by step in bounded time: bit N of `places` tells whether a step may end before the letter N."""
    every, below = (1 << len(path) + 1) - 1, _find_letters("/", path)
    places = 1
    for step in steps:
        after = -(places & -places)  # all bits from the first place on
        if step == _BELOW:
            places |= (below & after) << 1
        elif step == _ANYTHING:
            places = every & after
        elif step == _NAME:
            while more := ((places & ~below) << 1) & every & ~places:
                places |= more
        else:
            places = (places & _find_letters(step, path)) << 1
        if not places:
            return False
    return bool(places >> len(path))


@lru_cache(maxsize=1024)
def _find_letters(step: str, path: str) -> int:
    """Returns the bits of the letters of a path that a step matches."""
    is_match = _compile(step).fullmatch
    return sum(1 << at for at, letter in enumerate(path) if is_match(letter))


def _translate(pattern: str) -> str:
    """Translates the pattern to a regular expression, with patternmatcher's special cases for `**`."""
    if not _special(pattern):
        return rf"{re.escape(pattern)}\Z"
    if pattern.startswith("**") and not _special(pattern[2:]):
        suffix = pattern[2:]
        start = rf"(?:.*{re.escape(suffix)}|{re.escape(suffix.removeprefix('/'))})"
        return rf"(?s:{start if suffix.startswith('/') else '.*' + re.escape(suffix)})\Z"
    if pattern.endswith("**") and not _special(pattern[:-2]):
        return re.escape(pattern[:-2])  # a prefix
    parts = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*" and pattern.startswith("*", at):
            at += 2 if pattern.startswith("*/", at) else 1
            parts.append(_ANYTHING if at == len(pattern) else _BELOW)
        elif character == "*":
            parts.append(_NAME)
        elif character == "?":
            parts.append("[^/]")
        elif character == "\\":
            parts.append("\\" + pattern[at : at + 1])
            at += 1
        else:
            parts.append(f"\\{character}" if character in _ESCAPED else character)
    return "".join(parts) + r"\Z"


@lru_cache(maxsize=1024)
def _compile(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Python warns of `[[`, which a later version may give a meaning
        return re.compile(text)


def _special(text: str) -> bool:
    return any(character in text for character in "*?\\[]")
