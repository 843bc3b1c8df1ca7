"""`imgtool prune`: deletes files that no run has used for a while from the machine's cache.

imgtool deletes only files whose names have its patterns, so other files in the same folder are safe. The last use of
a file is its access time or its modification time, whichever is later. Many systems do not update the access time, so
`base.atomic_files.mark_used` sets it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import LocalFileError

_LEFT_OVER = r"\.imgtool-[0-9a-f]{16}\.tmp"  # unfinished files of killed runs (`base.atomic_files.temporary_file`)
_BLOB, _RECORD = "blobs/sha256/[0-9a-f]{64}", r"layers/[0-9a-f]{2}/[0-9a-f]{64}\.json"
_NOTE = rf"[0-9a-f]{{16,64}}\.json|{_LEFT_OVER}"
_NOTES = (
    *("bases", "bounded", "checked", "debian", "hashes", "imports", "libraries", "metadata"),
    *("places", "rendered", "stages", "tokens"),
)
_KINDS = {  # patterns of file names, by folder in the cache
    "wheels": {"wheels": r"[0-9a-f]{2}/[0-9a-f]{64}/[^/]+"},
    "layers": {"layers": rf"{_BLOB}|{_RECORD}|(blobs/sha256|layers/[0-9a-f]{{2}})/{_LEFT_OVER}"},
    "notes": dict.fromkeys(_NOTES, _NOTE),
}
_LOOKED, _BETWEEN = f"bounded/{'0' * 16}.json", 600  # seconds between two looks at the size of the whole cache
_UNDER_WAY = 60  # seconds: a download that has grown since then still runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The number and bytes of the files of one kind, and of those that `prune` deleted or would delete."""

    kind: str
    count: int
    size: int
    freed: int
    freed_size: int


def prune_cache(cache: Path, before: float, *, dry_run: bool = False) -> tuple[Freed, ...]:
    """Deletes the files that no run has used since the time `before`.

    Args:
        cache: the machine's cache.
        before: the time in seconds since 1970.
        dry_run: delete nothing.

    Deletes all files that it can, and then raises LocalFileError if there are files that it cannot delete.
    """
    failed: list[OSError] = []
    found = tuple(_prune_kind(cache, kind, before, failed, dry_run=dry_run) for kind in _KINDS)
    if failed:
        raise LocalFileError(
            f"cannot delete {failed[0].filename}: {failed[0].strerror}", hint="the file may belong to another user"
        )
    return found


@contextmanager
def bound_cache(cache: Path, most: int) -> Iterator[None]:
    """Keeps the cache's files while the block runs; afterwards deletes the least recently used over `most` bytes.

    Other runs that use the cache at that time keep all files; the next run then deletes them.
    """
    handle = None
    try:
        with suppress(OSError):  # no cache yet, or a file system without locks
            handle = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete_oldest(cache, most)
            os.close(handle)


def _delete_oldest(cache: Path, most: int) -> None:
    looked = cache / _LOOKED
    if looked.exists() and time.time() - looked.stat().st_mtime < _BETWEEN:
        return
    looked.parent.mkdir(exist_ok=True)
    looked.touch()
    files = []
    for path in (path for patterns in _KINDS.values() for path in _list_files(cache, patterns)):
        with suppress(FileNotFoundError):
            state = path.stat()
            files.append((max(state.st_atime, state.st_mtime), state.st_size, path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= most:
            return
        path.unlink(missing_ok=True)
        left -= size


def _prune_kind(cache: Path, kind: str, before: float, failed: list[OSError], *, dry_run: bool) -> Freed:
    count = size = freed = freed_size = 0
    for path in _list_files(cache, _KINDS[kind]):
        with suppress(FileNotFoundError):  # another run deleted it
            state = path.stat()
            own = state.st_size if state.st_nlink == 1 else 0  # another hard link keeps the bytes
            count, size = count + 1, size + own
            is_growing = path.name == "part" and time.time() - state.st_mtime < _UNDER_WAY
            if max(state.st_atime, state.st_mtime) >= before or is_growing:
                continue
            try:
                if not dry_run:
                    path.unlink(missing_ok=True)
            except OSError as error:
                failed.append(error)
                continue
            freed, freed_size = freed + 1, freed_size + own
            if kind == "wheels":
                with suppress(OSError):  # the folder has other files, or another run writes to it again
                    path.parent.rmdir()
    return Freed(kind=kind, count=count, size=size, freed=freed, freed_size=freed_size)


def _list_files(cache: Path, patterns: Mapping[str, str]) -> Iterator[Path]:
    for folder, pattern in patterns.items():
        for path in sorted((cache / folder).rglob("*")):
            name = path.relative_to(cache / folder).as_posix()
            if re.fullmatch(pattern, name) and path.is_file() and not path.is_symlink():
                yield path
