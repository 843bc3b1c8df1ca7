"""Reads YAML as text: no value becomes a number or a boolean.

The result is a tree of nodes with positions. `2.10`, `on`, `0755`, `22:22` and `12e5678` stay as typed, since YAML
1.1 and 1.2 disagree on them, with a mark for quoted ones. The reader refuses, with its place, what a spec has no use
for: tags, merge keys, duplicate keys, several documents, and unlimited growth through aliases.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from training_imgtool.core.errors import InputError
from training_imgtool.core.secret_text import detect_line_secret
from training_imgtool.yamlfile.tree import MAX_DEPTH, Items, Position, Scalar, Table, TreeBuilder

MAX_BYTES = 1 << 20
# Characters that YAML forbids, and line ends of YAML 1.1 that editors and YAML 1.2 do not have.
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
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
    ("", "exceeded maximum nesting", f"nested deeper than {MAX_DEPTH} levels", None, False),  # libyaml 0.2.6: 1,000
)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most `limit` bytes.

    Refuses a FIFO or a device instead of waiting for it. Raises InputError with the path and the cause.
    """
    try:
        _expect_file(path, os.stat(path).st_mode)  # noqa: PTH116 - before open, which acts on some devices
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with open(handle, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
            _expect_file(path, os.fstat(handle).st_mode)
            data = stream.read(limit + 1)
    except OSError as error:
        raise InputError(f"{path}: {_cause(error)}") from error
    if len(data) > limit:
        raise InputError(f"{path}: larger than {limit} bytes", hint="it should be a few kilobytes; is this the file?")
    return data


def parse(data: bytes, name: str, *, what: str = "file") -> Table:
    """Parses a YAML document that is one mapping.

    Args:
        data: the file's bytes: UTF-8, with or without a byte order mark.
        name: the file's name; messages begin with `name:line:column`.
        what: the noun for an empty file: "the spec is empty".

    Raises:
        InputError: the bytes are not YAML, not one mapping, or use what the reader refuses; `details` holds the line
            and a caret if they help.
    """
    text = _decode(data, name)
    tree = TreeBuilder(name)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            tree.take(event)
    except yaml.YAMLError as error:
        problem = explain(error, text)
        at = Position(problem.line, problem.column)
        raise InputError(
            f"{name}:{at.line}:{at.column}: {problem.message}", hint=problem.hint, details=_caret(text, at)
        ) from None
    root = tree.root
    if root is None or (isinstance(root, Scalar) and root.null):
        raise InputError(f"{name}: the {what} is empty")
    if not isinstance(root, Table):
        kind = "a list" if isinstance(root, Items) else "text"
        raise InputError(
            f"{name}:{root.at.line}:{root.at.column}: expected a mapping (`key: value` lines) at the top, found {kind}"
        )
    return root


def _decode(data: bytes, name: str) -> str:
    """Decodes UTF-8 and drops the byte order mark; raises InputError."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name}: the file is UTF-16 (byte 0)", hint="save it as UTF-8")
    if b"\x00" in data:
        offset = data.index(b"\x00")
        hint = "save it as UTF-8" if data[1:2] == b"\x00" or offset == 0 else None
        raise InputError(f"{name}: a NUL at byte {offset}: this is not a text file in UTF-8", hint=hint)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        at = _position_at(data[: error.start].decode("utf-8"))
        raise InputError(
            f"{name}:{at.line}:{at.column}: not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint="save the file as UTF-8",
        ) from None
    if forbidden := re.search(_FORBIDDEN, text):
        at = _position_at(text[: forbidden.start()])
        raise InputError(
            f"{name}:{at.line}:{at.column}: the character U+{ord(forbidden[0]):04X} is not allowed", hint="delete it"
        )
    return text


def _position_at(before: str) -> Position:
    lines = _LINE_END.split(before)
    return Position(len(lines), len(lines[-1]) + 1)


def _caret(text: str, at: Position) -> tuple[str, ...]:
    """Returns the line and a caret below the column; nothing if the line is empty or may contain a secret."""
    lines = _LINE_END.split(text)
    if at.line > len(lines) or not lines[at.line - 1].strip() or detect_line_secret(lines[at.line - 1]):
        return ()
    start = max(0, at.column - 60)
    shown = lines[at.line - 1][start : start + 100]
    visible = "".join("→" if c == "\t" else c if c.isprintable() else "?" for c in shown)
    return (visible, " " * (at.column - 1 - start) + "^")


def _expect_file(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))
    kind = next((name for test, name in kinds if test(mode)), "device")
    raise InputError(f"{path}: expected a file, found a {kind}")


def _cause(error: OSError) -> str:
    causes = {errno.ENOENT: "no such file", errno.ELOOP: "a symbolic link that leads to itself"}
    return causes.get(error.errno or 0, (error.strerror or str(error)).lower())


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
