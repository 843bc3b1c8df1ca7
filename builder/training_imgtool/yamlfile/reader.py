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

import yaml

from training_imgtool.core.errors import InputError
from training_imgtool.core.secret_text import detect_line_secret
from training_imgtool.yamlfile.messages import explain
from training_imgtool.yamlfile.tree import Items, Position, Scalar, Table, TreeBuilder

MAX_BYTES = 1 << 20
# Characters that YAML forbids, and line ends of YAML 1.1 that editors and YAML 1.2 do not have.
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
_LINE_END = r"\r\n|\r|\n"


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Reads a regular file of at most `limit` bytes.

    Refuses a FIFO or a device instead of waiting for it. Raises InputError with the path and the cause.
    """
    try:
        _expect_file(path, os.stat(path).st_mode)  # noqa: PTH116 - before open, which acts on some devices
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
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
    lines = re.split(_LINE_END, before)
    return Position(len(lines), len(lines[-1]) + 1)


def _caret(text: str, at: Position) -> tuple[str, ...]:
    """Returns the line and a caret below the column; nothing if the line is empty or may contain a secret."""
    lines = re.split(_LINE_END, text)
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
