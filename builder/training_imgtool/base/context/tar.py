"""Writes a build context as a tar, with the same bytes for the same entries on any machine and for any user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from training_imgtool.base.context.entries import Entry, Kind, blocks

_TYPES = {Kind.FILE: b"0", Kind.DIRECTORY: b"5", Kind.SYMLINK: b"2"}
_BLOCK = 512
MTIME = 315_619_200  # 1980-01-02T00:00:00Z, because trainers may make zip files, which cannot contain earlier times
_END = bytes(2 * _BLOCK)


def write_tar(entries: Iterable[Entry], stream: IO[bytes], mtime: int = MTIME) -> None:
    """Writes a POSIX tar with owner 0:0, and with a PAX header only where a name needs one.

    Args:
        entries: the entries, parents before children.
        stream: receives the bytes; nothing is buffered.
        mtime: the time of every entry, in seconds since 1970.

    Raises:
        InputError: a file changed since the scan.
        VerificationError: a file from elsewhere does not have the expected hash.
    """
    for entry in entries:
        stream.write(header(entry, mtime))
        if entry.kind is not Kind.FILE:
            continue
        for block in blocks(entry):
            stream.write(block)
        stream.write(bytes(-entry.size % _BLOCK))
    stream.write(_END)


def header(entry: Entry, mtime: int) -> bytes:
    """Makes the tar header of one entry."""
    import tarfile  # most runs write no context

    info = tarfile.TarInfo(entry.path + ("/" if entry.kind is Kind.DIRECTORY else ""))
    info.type = _TYPES[entry.kind]
    info.mode = entry.mode
    info.size = entry.size
    info.mtime = mtime
    info.linkname = entry.target or ""
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
