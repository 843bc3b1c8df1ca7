"""Words, quotes and variables in Dockerfiles, as the Dockerfile reference and BuildKit's `shell/lex.go` have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from training_imgtool.core.errors import InputError

_NOT_SPACE = "\x1c\x1d\x1e\x1f"  # spaces to Python, not to Go
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_BETWEEN_FIELDS = re.compile(r"[\t\v\f\r ]+")  # the parser's `reWhitespace`, which knows ASCII only
_PLAIN = re.compile(r"[^\s'\"\\`]+")  # outside quotes: what neither ends a word nor means anything, as one piece
_QUOTED = re.compile(r"[^'\"\\`]+")
_LITERAL = re.compile(r"[^'\"$\\`}]+")  # what `expand` copies as one piece
_SPECIAL = "@*#?-$!"  # the shell's special parameters, never set in a Dockerfile


class SubstitutionError(InputError):
    """A word whose quotes or variables are wrong, or use a form that only an engine knows."""


def is_space(character: str) -> bool:
    """Returns whether Go's `unicode.IsSpace` says so."""
    return character.isspace() and character not in _NOT_SPACE


def fields(text: str, most: int = 0) -> list[str]:
    """Splits a line in which quotes mean nothing into at most `most` parts; U+00A0 is a character of a part."""
    trimmed = text.strip(_SPACES)
    return _BETWEEN_FIELDS.split(trimmed, maxsplit=max(0, most - 1)) if trimmed else []


@lru_cache(maxsize=1024)
def split_words(text: str, escape: str) -> tuple[str, ...]:
    """Splits at spaces outside quotes; quotes and escapes stay in the words for `expand` to take away."""
    words: list[str] = []
    word = ""
    quote = ""
    started = False
    at = 0
    while at < len(text):
        if plain := (_QUOTED if quote else _PLAIN).match(text, at):
            word += plain[0]
            at, started = plain.end(), True
            continue
        character = text[at]
        at += 1
        if not quote and is_space(character):
            if started:
                words.append(word)
            word, started = "", False
            continue
        if character == escape and quote != "'":
            if at == len(text):  # an escape at the very end is dropped
                break
            word += character + text[at]
            at += 1
        else:
            if character in "'\"" and quote in ("", character):
                quote = "" if quote else character
            word += character
        started = True
    if started:
        words.append(word)
    return tuple(words)


def raw_pairs(text: str, escape: str) -> tuple[tuple[str, str], ...]:
    """Returns the names and values of ENV or LABEL, not yet expanded: `A=1 B="2 3"`, or the old form `A 1`.

    Raises SubstitutionError when a word has no `=`, or when there is only a name.
    """
    words = split_words(text, escape)
    if not words:
        raise SubstitutionError("names and values are missing: expected NAME=VALUE")
    if "=" not in words[0]:
        parts = fields(text, 2)
        if len(parts) < 2:
            raise SubstitutionError(f"{words[0]!r} has no value: expected NAME=VALUE")
        return ((parts[0], parts[1]),)
    for word in words:
        if "=" not in word:
            raise SubstitutionError(f"{word!r} has no '=': expected NAME=VALUE")
    return tuple((name, value) for name, _, value in (word.partition("=") for word in words))


def expand(word: str, variables: Mapping[str, str], escape: str) -> str:
    r"""Takes quotes and escapes away and puts values in for `$x ${x} ${x:-d} ${x-d} ${x:+a} ${x+a} ${x:?m} ${x?m}`.

    A variable that is not set is empty. Raises SubstitutionError for an open quote or brace, for `${x?m}` of a
    missing variable, and for pattern forms such as `${x#p}`, which engines differ in.
    """
    reader = _Reader(word, variables, escape)
    return reader.until("")


def has_variable(word: str, escape: str) -> bool:
    """Returns whether `expand` looks a variable up; raises SubstitutionError for a word that is wrong before one."""
    reader = _Reader(word, {}, escape)
    try:
        reader.until("")
    except SubstitutionError:
        if not reader.has_variable:
            raise
    return reader.has_variable


class _Reader:
    """One pass over one word."""

    def __init__(self, word: str, variables: Mapping[str, str], escape: str) -> None:
        self._word = word
        self._at = 0
        self._variables = variables
        self._escape = escape
        self.has_variable = False

    def _peek(self) -> str:
        return self._word[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _literal(self) -> str:
        """Reads the characters up to the next one that may mean something."""
        match = _LITERAL.match(self._word, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def until(self, stop: str) -> str:
        """Reads up to `stop`, or to the end when it is empty."""
        result = self._literal()
        while character := self._next():
            if character == stop:
                return result
            if character == "'":
                result += self._single()
            elif character == '"':
                result += self._double()
            elif character == "$":
                result += self._dollar()
            elif character == self._escape:
                result += self._next()
            else:
                result += character
            result += self._literal()
        if stop:
            raise SubstitutionError(f"{self._word!r}: no closing {stop!r}")
        return result

    def _single(self) -> str:
        end = self._word.find("'", self._at)
        if end < 0:
            raise SubstitutionError(f"{self._word!r}: no closing single quote")
        text = self._word[self._at : end]
        self._at = end + 1
        return text

    def _double(self) -> str:
        result = self._literal()
        while character := self._next():
            if character == '"':
                return result
            if character == "$":
                result += self._dollar()
            elif character == self._escape and self._peek() in ('"', "$", self._escape):
                result += self._next()
            elif character != self._escape or self._peek():
                result += character
            result += self._literal()
        raise SubstitutionError(f"{self._word!r}: no closing double quote")

    def _dollar(self) -> str:
        if self._peek() != "{":
            name = self._name()
            self.has_variable = self.has_variable or bool(name)
            return self._variables.get(name, "") if name else "$"
        self._next()
        if self._peek() in ("", "{", "}", ":"):
            raise SubstitutionError(f"{self._word!r}: '${{' without a name and '}}'")
        self.has_variable = True
        name = self._name()
        sign = self._next()
        if sign == "}":
            return self._variables.get(name, "")
        colon = sign == ":"
        if colon:
            sign = self._next()
        if sign not in ("-", "+", "?"):
            raise SubstitutionError(f"{self._word!r}: the form ${{{name}{sign}…}} is not supported")
        other = self.until("}")
        return self._choose(name, sign, other, empty_is_unset=colon)

    def _choose(self, name: str, sign: str, other: str, *, empty_is_unset: bool) -> str:
        value = self._variables.get(name)
        is_set = value is not None and not (empty_is_unset and value == "")
        if sign == "+":
            return other if is_set else ""
        if is_set:
            return value or ""
        if sign == "?":
            raise SubstitutionError(f"{name}: {other or 'is not set'}")
        return other

    def _name(self) -> str:
        first = self._peek()
        if first and first in _SPECIAL:
            return self._next()
        start = self._at
        digits = first.isdigit()
        while (character := self._peek()) and (
            character.isdigit() if digits else character.isalnum() or character == "_"
        ):
            self._at += 1
        return self._word[start : self._at]
