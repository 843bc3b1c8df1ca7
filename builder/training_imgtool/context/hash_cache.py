"""Hashes of a context's files from earlier runs, so that a big tree that did not change is not read again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from training_imgtool.context.secret_files import PATTERNS
from training_imgtool.core.json_cache import read_cached, write_cached

_FEWEST = 64  # files: fewer are read faster than remembered,
_LEAST = 16 << 20  # unless they have so many bytes
_MOST = 200_000  # entries that are kept; then what is not in use goes
_MAX_BYTES = 256 << 20


@contextmanager
def remembered_hashes(cache: Path, root: Path) -> Iterator[MutableMapping[str, str]]:
    """The hashes for `context.scan` of a folder: by path, size, times and inode. Losing it costs time, nothing else.

    Each folder has a file of its own, so that a small one does not pay for a large one. What a file looks like depends
    on the patterns for secrets, so with other patterns the file is another one.
    """
    name = hashlib.sha256(b"\0".join((PATTERNS.encode(), bytes(root.absolute()))))
    path = cache / "hashes" / f"{name.hexdigest()}.json"
    cached = read_cached(path, _MAX_BYTES)
    before: dict[str, str] = cached if isinstance(cached, dict) else {}
    hashes = dict(before)
    yield hashes
    new = hashes.keys() - before.keys()
    if len(new) < _FEWEST and sum(map(_size, new)) < _LEAST:
        return
    entries = hashes if len(hashes) <= _MOST else {key: hashes[key] for key in new}
    write_cached(path, entries, _MAX_BYTES)


def _size(key: str) -> int:
    """The file's size, which its key has after the path (`context_scan.Walk`)."""
    return int(key.partition("\0")[2].partition(" ")[0])
