"""Small values in files of the cache. A run that finds none works longer, with the same result.

A file holds the SHA-256 of the rest, a line feed, and the value as JSON.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from training_imgtool.core.atomic_files import write_atomic
from training_imgtool.core.errors import LocalFileError

MAX_BYTES = 1 << 20


def read_cached(path: Path) -> Any:
    """Returns the value; None for a file that is missing, damaged, larger than 1 MiB, or no regular file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        check, _, body = data.partition(b"\n")
        if len(data) > MAX_BYTES or hashlib.sha256(body).hexdigest().encode() != check:
            return None
        return json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None


def write_cached(path: Path, value: Any, *, mode: int | None = None) -> None:
    """Writes a value for `read_cached`, with the permission bits `mode`.

    Writes nothing if the value is too large or not UTF-8 text, or if the cache is read-only.
    """
    try:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        if len(data) <= MAX_BYTES:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data, mode=mode)
    except (OSError, ValueError, LocalFileError):
        return
