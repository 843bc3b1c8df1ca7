"""Git's object ids without git: a folder's identity that anyone can compare with `git rev-parse HEAD:FOLDER`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from training_imgtool.context.entries import Entry, Kind
from training_imgtool.core.errors import InputError

_MODES = {(Kind.FILE, 0o644): b"100644", (Kind.FILE, 0o755): b"100755", (Kind.SYMLINK, 0o777): b"120000"}


def blob(data: bytes) -> str:
    """The object id of a file's content."""
    return _object("blob", data)


def tree_id(entries: Sequence[Entry], folder: str) -> str:
    """The object id of `folder` as a tree, empty folders left out as git does.

    Args:
        entries: a context's entries, sorted.
        folder: relative path in it; `.` for all.

    Raises:
        InputError: a file below it is known by another hash only, or `folder` is no folder.
    """
    prefix = "" if folder == "." else f"{folder}/"
    below = [entry for entry in entries if entry.path.startswith(prefix)]
    if prefix and not any(entry.path == folder and entry.kind is Kind.DIRECTORY for entry in entries):
        raise InputError(f"{folder}: not a folder")
    return _tree(below, len(prefix))


def _tree(entries: Sequence[Entry], start: int) -> str:
    """The id of the tree whose members' names begin at `start` in their paths."""
    items: dict[bytes, tuple[bytes, bytes, str]] = {}
    below: dict[str, list[Entry]] = {}
    for entry in entries:
        name, slash, _ = entry.path[start:].partition("/")
        if slash:
            below.setdefault(name, []).append(entry)
        elif entry.kind is not Kind.DIRECTORY:
            if entry.blob is None:
                raise InputError(f"{entry.path}: only its sha256 is known, so it has no git id")
            encoded = name.encode()
            items[encoded] = (_MODES[entry.kind, entry.mode], encoded, entry.blob)
    for name, inner in below.items():
        encoded = name.encode()
        if any(entry.kind is not Kind.DIRECTORY for entry in inner):
            items[encoded + b"/"] = (b"40000", encoded, _tree(inner, start + len(name) + 1))
    data = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for _, (mode, name, oid) in sorted(items.items()))
    return _object("tree", data)


def _object(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
