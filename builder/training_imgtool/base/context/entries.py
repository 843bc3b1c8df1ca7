"""The entries of a build context, and how imgtool reads their bytes safely.

imgtool opens a file below its root one folder at a time, never through a symbolic link. The file must still be the one
that imgtool scanned: same inode, size and time, and at the end the same hash.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from training_imgtool.base.errors import InputError, VerificationError

BLOCK = 1 << 20  # bytes read at once
GONE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR})  # errors of open when a path became something else
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, and no wait for a FIFO


class Kind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    DIRECTORY = "dir"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A file as it was when imgtool scanned it; `path` is relative to `root`."""

    root: Path
    path: str
    inode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder or link in a build context.

    Attributes:
        path: relative, with slashes.
        kind: file, folder or symbolic link.
        mode: 0o755 for folders and executable files, 0o777 for links, else 0o644.
        size: the size of a file, in bytes.
        sha256: the hash of a file.
        blob: the git object id of a file or a link; None when only the sha256 is known.
        target: the target of a link.
        origin: the place of a file's bytes: on disk in the context, in memory, or in a file elsewhere; None when only
            their hash is known.
    """

    path: str
    kind: Kind
    mode: int
    size: int = 0
    sha256: str | None = None
    blob: str | None = None
    target: str | None = None
    origin: OnDisk | bytes | Path | None = None


def open_below(root: Path, path: str) -> int:
    """Opens a file; follows `root` if it is a link, but no links below; returns the descriptor. Raises OSError."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *folders, name = path.split("/")
        for part in folders:
            inner = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, _OPEN, dir_fd=folder)
    finally:
        os.close(folder)


def blocks(entry: Entry) -> Iterator[bytes]:
    """Yields the bytes of a file.

    Raises:
        InputError: the file has changed since the scan ("changed while reading"), or cannot be read.
        VerificationError: a file from outside the context's folder does not have the expected hash.
    """
    origin = entry.origin
    if isinstance(origin, bytes):
        yield origin
        return
    if origin is None:
        raise VerificationError(
            f"{entry.path}: imgtool knows only the hash of this file; its bytes are not on this machine"
        )
    with os.fdopen(_open(entry.path, origin), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
            raise _wrong(entry)
        if isinstance(origin, OnDisk) and (status.st_ino, status.st_mtime_ns) != (origin.inode, origin.mtime_ns):
            raise _wrong(entry)
        digest = hashlib.sha256()
        left = entry.size
        while block := file.read(min(BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                break
            digest.update(block)
            yield block
        if left or digest.hexdigest() != entry.sha256:
            raise _wrong(entry)


def _open(path: str, origin: OnDisk | Path) -> int:
    try:
        return open_below(origin.root, origin.path) if isinstance(origin, OnDisk) else os.open(origin, os.O_RDONLY)
    except OSError as error:
        if error.errno in GONE:
            raise change_error(path) from error
        raise unreadable(path, error) from error


def _wrong(entry: Entry) -> InputError | VerificationError:
    if isinstance(entry.origin, Path):
        return VerificationError(
            f"{entry.origin}: expected the content of {entry.path} (sha256 {entry.sha256}), found other content"
        )
    return change_error(entry.path)


def change_error(path: str) -> InputError:
    """Returns the error for a file that has changed since the scan."""
    return InputError(f"changed while reading: {path}", hint="run again once nothing writes to the build context")


def unreadable(path: str, error: OSError) -> InputError:
    """Returns the error for a path that cannot be read."""
    return InputError(
        f"{path}: cannot be read: {error.strerror}", hint="fix its permissions, or list it in .dockerignore"
    )
