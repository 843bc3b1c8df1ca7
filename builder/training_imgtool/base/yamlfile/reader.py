"""Reads YAML as text, so that no value becomes a number or a boolean.

The result is a tree of nodes with positions. `2.10`, `on`, `0755`, `22:22` and `12e5678` stay as typed, since YAML 1.1
and 1.2 disagree on them; quoted values are marked. A spec needs no tags, merge keys, duplicate keys, several documents
or unlimited growth through aliases, so the reader refuses these and names the place.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import yaml

from training_imgtool.base.errors import InputError
from training_imgtool.base.secret_text import detect_line_secret
from training_imgtool.base.yamlfile.tree import Items, Position, Scalar, Table, TreeBuilder

MAX_BYTES = 1 << 20
# Characters that YAML forbids, and line ends of YAML 1.1 that editors and YAML 1.2 do not know.
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONFLICT = re.compile(r"(?m)^<<<<<<< ")
_CURES = {  # by words of the parser's messages
    "tab": "indent with spaces; YAML allows no tab there",
    "cannot start any token": "put the value in quotes",
    "mapping values are not allowed": "put a value that contains ': ' in quotes, and indent a mapping's keys alike",
    "could not find expected ':'": "write `key: value`, with a space after the colon",
    "unexpected end of stream": "close the quotes and brackets",
    "did not find expected": "close the quotes and brackets, and indent the keys of a mapping alike",
}


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most `limit` bytes.

    Refuses a FIFO or a device instead of waiting for it. Raises InputError with the path and the cause.
    """
    try:
        if not stat.S_ISREG(mode := path.stat().st_mode):
            raise InputError(f"{path}: expected a file, found {'a folder' if stat.S_ISDIR(mode) else 'none'}")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        cause = "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        raise InputError(f"{path}: {cause}") from error
    if len(data) > limit:
        raise InputError(f"{path}: larger than {limit} bytes", hint="check the path; such a file has a few kilobytes")
    return data


def parse(data: bytes, name: str, *, what: str = "file") -> Table:
    """Parses a YAML document that is one mapping.

    Args:
        data: the file's bytes: UTF-8, with or without a byte order mark.
        name: the file's name; messages begin with `name:line:column`.
        what: the noun for an empty file: "the spec is empty".

    Raises:
        InputError: the bytes are not YAML, are not one mapping, or use what the reader refuses. If they help, `details`
            has the line and a caret.
    """
    text = _decode(data, name)
    tree = TreeBuilder(name)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            tree.take(event)
    except yaml.YAMLError as error:
        at, problem = _explain(error)
        details = _caret(text, at)
        said = "tab" if details and details[0][: at.column].endswith("→") else problem
        hint = next((cure for words, cure in _CURES.items() if words in said), None)
        if _CONFLICT.search(text):
            hint = "choose one side of the merge conflict, and remove the lines <<<<<<<, ======= and >>>>>>>"
        raise InputError(f"{name}:{at.line}:{at.column}: not YAML: {problem}", details=details, hint=hint) from None
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


def _explain(error: Any) -> tuple[Position, str]:
    """Returns the place and the text of a PyYAML error; only a MarkedYAMLError has a place."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Position(1, 1), str(error)
    words = " ".join(part for part in (error.problem, error.context) if part)
    if error.context_mark and error.context_mark.line != mark.line:
        words += f", begun in line {error.context_mark.line + 1}"
    return Position(mark.line + 1, mark.column + 1), words
