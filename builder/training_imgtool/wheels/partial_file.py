"""The file that a download grows in: one process holds it, and the next continues what an earlier one left."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from training_imgtool.core.errors import LocalFileError
from training_imgtool.core.json_cache import open_cache_file

BLOCK = 1 << 18


@contextmanager
def open_locked(path: Path) -> Iterator[BinaryIO]:
    """`path` open for reading and writing, with a lock on the very file that has the name now."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise LocalFileError(f"{path}: expected a file", hint="delete it, or set IMGTOOL_CACHE")
        stream = os.fdopen(handle, "r+b")
        fcntl.flock(stream, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(stream.fileno()).st_ino:
                break
        stream.close()  # its name went with a rename while we waited
    with stream:
        yield stream


def hash_part(part: BinaryIO, digest: hashlib._Hash, size: int) -> int:
    """Hashes what an earlier download left; returns how many bytes that is."""
    part.seek(0)
    have = 0
    while block := part.read(BLOCK):
        digest.update(block)
        have += len(block)
    if have < size:
        return have
    part.seek(0)
    part.truncate()
    return 0


def read_blocks(path: Path) -> Iterator[bytes]:
    """A cache file's bytes; raises OSError."""
    with open_cache_file(path) as stream:
        while block := stream.read(BLOCK):
            yield block
