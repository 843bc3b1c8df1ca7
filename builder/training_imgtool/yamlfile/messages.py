"""Translates PyYAML's errors into messages for users, with the place of the cause."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_INDENT = "lines of one mapping begin in the same column"
_QUOTE = "put the value in quotes"

# (words of PyYAML's context, words of its problem, our message, our hint, whether the place is that of the context);
# libyaml and the pure Python reader word some problems differently. The first match counts.
_MESSAGES: tuple[tuple[str, str, str, str | None, bool], ...] = (
    ("quoted scalar", "end of stream", "a quote is opened here and never closed", "close it", True),
    ("quoted scalar", "document separator", "a quote is opened here and never closed", "close it", True),
    ("quoted scalar", "unknown escape", "a backslash escape that YAML does not know", "use single quotes", False),
    (
        "double-quoted scalar",
        "unknown escape",
        "a backslash escape that YAML does not know",
        "use single quotes",
        False,
    ),
    ("quoted scalar", "Unicode character escape", "an escape that is no character", None, False),
    ("alias", "alphabetic or numeric", "a value that begins with '*' is an alias", _QUOTE, True),
    ("anchor", "alphabetic or numeric", "a value that begins with '&' is an anchor", _QUOTE, True),
    ("", "undefined tag handle", "tags are not allowed", "quote a value that begins with '!'", False),
    ("tag", "", "tags are not allowed", "quote a value that begins with '!'", True),
    ("flow node", "node content", "a '[' or '{' above is not closed, or a value is missing here", "close it", False),
    ("flow sequence", "expected ',' or ']'", "a '[' is opened here and not closed", "close it with ']'", True),
    ("flow mapping", "expected ',' or '}'", "a '{' is opened here and not closed", "close it with '}'", True),
    ("", "mapping values are not allowed", "a second ': ' in one value, or a wrong indent", _QUOTE, False),
    (
        "",
        "sequence entries are not allowed",
        "a list begins on its key's line",
        "begin `- item` on its own line",
        False,
    ),
    ("", "could not find expected ':'", "a key without ': '", "write `key: value`", True),
    ("block mapping", "expected", "expected a key in the column of the keys above", _INDENT, False),
    ("block collection", "expected", "expected '- ' in the column of the items above", _INDENT, False),
    ("block scalar", "", "after '|' or '>' nothing but a comment may follow", _QUOTE, False),
    ("", "node content", "a value is missing, or begins with a bracket or comma", _QUOTE, False),
    ("", "unexpected ':'", "a ':' that YAML does not expect", _QUOTE, False),
    ("", "mapping keys are not allowed", "a value cannot begin with '? '", _QUOTE, False),
    ("", "document start", "a second document begins here", "one file holds one document", False),
)


class Problem(NamedTuple):
    """A message and its place, 1-based."""

    line: int
    column: int
    message: str
    hint: str | None


def explain(error: Any, text: str) -> Problem:
    """Returns what a PyYAML error means for `text`; only a MarkedYAMLError has a place."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Problem(1, 1, f"not YAML: {error}", None)
    context, problem = error.context or "", error.problem or ""
    line, column = mark.line + 1, mark.column + 1
    if tab := _tab(text, line, problem):
        return Problem(line, tab, "a tab where YAML takes spaces only", "indent with spaces")
    if "cannot start any token" in problem:
        return Problem(line, column, f"a value cannot begin with {_character(text, line, column)}", _QUOTE)
    for in_context, in_problem, message, hint, at_context in _MESSAGES:
        if in_context in context and in_problem in problem:
            if at_context and error.context_mark is not None:
                line, column = error.context_mark.line + 1, error.context_mark.column + 1
            return Problem(line, column, message, hint)
    return Problem(line, column, f"not YAML: {problem or context}", None)


def _line(text: str, line: int) -> str:
    lines = _LINE_END.split(text)
    return lines[line - 1] if line <= len(lines) else ""


def _tab(text: str, line: int, problem: str) -> int | None:
    """Returns the column of a tab in the indent of `line`, if a tab explains the problem."""
    if not any(words in problem for words in ("cannot start any token", "tab character", "mapping values")):
        return None
    indent = re.match(r" *\t", _line(text, line))
    return indent.end() if indent else None


def _character(text: str, line: int, column: int) -> str:
    return repr(_line(text, line)[column - 1 : column])
