"""Reads and writes the small files in imgtool's cache. A run without these files takes longer and has the same result.

Several users may share a cache. Small files decide the content of images, so imgtool ignores a small file if any user
except root and the current user owns it or may change it. Each JSON file begins with a hash of its name and content, so
a damaged, exchanged or renamed file counts as missing. A large file has its hash as its name, and imgtool compares the
content with this hash when it reads the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from training_imgtool.base.atomic_files import write_atomic
from training_imgtool.base.errors import LocalFileError

MAX_BYTES = 1 << 20
_NAME_DIGITS = 40
_CHECK_BYTES = 65


def make_file_name(text: str) -> str:
    """Makes a valid file name from any text."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]}.json"


def read_cache_file(path: Path, limit: int = MAX_BYTES) -> bytes | None:
    """Returns the bytes of a file of the cache; None if it is missing or too large, or if others may change it."""
    try:
        with path.open("rb") as stream:
            state = os.fstat(stream.fileno())
            if state.st_uid not in {0, os.geteuid()} or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            data = stream.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def write_cache_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Writes a file of the cache, with the permission bits `mode`; writes nothing if the cache is read-only.

    This function does not wait until the disk has stored the file, because that takes milliseconds. If a loss of power
    damages the file, imgtool later treats the file as missing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=mode, follow=False, durable=False)
    except (OSError, LocalFileError):
        return


def read_cached(path: Path, limit: int = MAX_BYTES) -> Any:
    """Returns the value of a JSON file; None if the file is missing or damaged."""
    check, _, body = (read_cache_file(path, limit + _CHECK_BYTES) or b"").partition(b"\n")
    try:
        return json.loads(body) if check == _make_check(path, body) else None
    except (ValueError, RecursionError):
        return None


def write_cached(path: Path, value: Any, limit: int = MAX_BYTES, *, mode: int | None = None) -> None:
    """Writes a JSON file for `read_cached`, unless it is larger than `limit` bytes or not UTF-8 text."""
    try:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError:
        return
    if len(body) <= limit:
        write_cache_file(path, b"%b\n%b" % (_make_check(path, body), body), mode=mode)


def _make_check(path: Path, body: bytes) -> bytes:
    return (
        hashlib.sha256(b"%b/%b\n%b" % (os.fsencode(path.parent.name), os.fsencode(path.name), body))
        .hexdigest()
        .encode()
    )
