"""Hashes of a context's files from earlier runs, so that a big tree that did not change is not read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from builder.errors import LocalFileError
from builder.files import write_atomic

_FILE = "hashes.json"
_FEWEST = 64  # files: fewer are read faster than remembered
_MOST = 200_000  # entries that are kept; then what is not in use goes


@contextmanager
def remembered_hashes(cache: Path) -> Iterator[MutableMapping[str, str]]:
    """The memo for `context.scan`: by path, size, times and inode. Losing it costs time, nothing else."""
    path = cache / _FILE
    try:
        before: dict[str, str] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        before = {}
    memo = dict(before)
    yield memo
    new = memo.keys() - before.keys()
    if len(new) < _FEWEST:
        return
    kept = memo if len(memo) <= _MOST else {key: memo[key] for key in new}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(kept).encode())
    except (OSError, LocalFileError):
        return
