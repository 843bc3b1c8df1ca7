"""Small files of the cache. A run that finds none works longer, with the same result.

Several users may share a cache, so nothing here follows a symbolic link or waits for a FIFO: both are as good as a
missing file, and a write replaces them. What another user wrote, or may write, is not believed, except root's: what a
run remembers decides what is in images, and a checksum without a key proves nothing. Large files are named by their
content, which is hashed as it is read. A JSON file holds the SHA-256 of its own name and the rest, a line feed, and
the value, so a file that somebody copied to another name counts as missing too.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from training_imgtool.core.atomic_files import write_atomic
from training_imgtool.core.errors import LocalFileError
from training_imgtool.core.system import WARY, user_number

MAX_BYTES = 1 << 20
_NAME_DIGITS = 40


def make_file_name(text: str) -> str:
    """Returns a file name for any text."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]}.json"


def open_cache_file(path: Path) -> BinaryIO:
    """Opens a regular file of the cache for reading; raises OSError, also for a link or another kind of file."""
    handle = os.open(path, os.O_RDONLY | WARY)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(f"{path}: not a regular file")
    return open(handle, "rb")  # noqa: PTH123 - the caller closes it; a descriptor, not a path


def read_cache_file(path: Path, limit: int = MAX_BYTES) -> bytes | None:
    """Returns the bytes of a file of the cache; None if it is missing, larger than `limit`, or another user's."""
    try:
        with open_cache_file(path) as stream:
            state = os.fstat(stream.fileno())
            if state.st_uid not in {0, user_number()} or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            data = stream.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def write_cache_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Writes a file of the cache, with the permission bits `mode`; writes nothing if the cache is read-only.

    It does not wait for the disk, which takes milliseconds a file: what a loss of power damages is read as missing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=mode, follow=False, durable=False)
    except (OSError, LocalFileError):
        return


def read_cached(path: Path, limit: int = MAX_BYTES) -> Any:
    """Returns the value of a JSON file; None if the file is missing or damaged."""
    check, _, body = (read_cache_file(path, limit) or b"").partition(b"\n")
    if _checksum(path, body) != check:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def write_cached(path: Path, value: Any, limit: int = MAX_BYTES, *, mode: int | None = None) -> None:
    """Writes a JSON file for `read_cached`, unless it is larger than `limit` bytes or not UTF-8 text."""
    try:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError:
        return
    if len(body) < limit - 64:
        write_cache_file(path, _checksum(path, body) + b"\n" + body, mode=mode)


def _checksum(path: Path, body: bytes) -> bytes:
    name = f"{path.parent.name}/{path.name}\n".encode("utf-8", "surrogateescape")
    return hashlib.sha256(name + body).hexdigest().encode()
