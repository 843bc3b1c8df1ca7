"""Small values in files of the cache, for one run to spare the next one work. Losing them costs time, nothing else.

A file is the SHA-256 of what follows, a line end, and the value as JSON.
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
    """The value; None when there is no file, or one that is damaged or larger than 1 MiB."""
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
    """Writes what `read_cached` reads, with the permission bits `mode`.

    Nothing happens when it would be too large, is no text that UTF-8 can hold, or the cache cannot be written.
    """
    try:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        if len(data) <= MAX_BYTES:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data, mode=mode)
    except (OSError, ValueError, LocalFileError):
        return
