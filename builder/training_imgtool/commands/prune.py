"""`prune`: deletes what no run used for a while, from the machine's cache and the engine.

It touches only files with names that imgtool gives, so other files in the same folder are safe. The last use of a file
is the later of its two times: `core.atomic_files.mark_used` sets the access time, since many systems do not.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.errors import LocalFileError

_HEX = r"[0-9a-f]"
_NOTES = ("bases", "checked", "hashes", "locks", "registries", "rendered", "specs", "stages", "tokens")
_LEFT_OVER = r"\.imgtool-[0-9a-f]{16}\.tmp"  # what a killed run was writing (`core.atomic_files.temporary_file`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The files of one kind, and how many of them `prune` deleted or would delete; sizes in bytes."""

    kind: str
    count: int
    size: int
    freed: int
    freed_size: int


@dataclass(frozen=True, slots=True)
class _Thing:
    """Files that are kept or removed together: a wheel has its download and its address beside it."""

    files: tuple[Path, ...]
    folder: Path | None = None  # that is removed with them

    def last_used(self) -> float:
        """Seconds since 1970."""
        states = [state for path in self.files if (state := _state(path))]
        return max((max(state.st_atime, state.st_mtime) for state in states), default=0.0)

    def size(self) -> int:
        """Bytes on the disk that go with it; a file that has another name somewhere stays there."""
        states = [state for path in self.files if (state := _state(path))]
        return sum(state.st_size for state in states if state.st_nlink == 1)

    def remove(self) -> bool:
        """Removes it, unless a run is downloading it just now; raises OSError."""
        with suppress(FileNotFoundError), _Held(self.files) as free:
            if not free:
                return False
            for path in self.files:
                path.unlink(missing_ok=True)
            if self.folder:
                with suppress(OSError):  # another run began to fill it again
                    self.folder.rmdir()
        return True


class _Held:
    """Holds the lock of a download that broke off, if there is one; false when it is under way."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._part = next((path for path in files if path.name == "part"), None)
        self._handle: int | None = None

    def __enter__(self) -> bool:
        if self._part is None:
            return True
        self._handle = os.open(self._part, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)


def prune_cache(cache: Path, before: float, *, dry_run: bool = False) -> tuple[Freed, ...]:
    """Removes what no run used since a time.

    Args:
        cache: the machine's cache.
        before: seconds since 1970.
        dry_run: only look.

    Raises LocalFileError for files that it cannot remove, after it removed all others.
    """
    failed: list[OSError] = []
    kinds = (("wheels", _wheels(cache / "wheels")), ("layers", _layers(cache / "layers")), ("notes", _notes(cache)))
    freed = tuple(_prune_things(kind, things, before, failed, dry_run=dry_run) for kind, things in kinds)
    if failed:
        raise LocalFileError(
            f"{failed[0].filename}: cannot be removed: {failed[0].strerror}", hint="it may be another user's"
        )
    return freed


def _prune_things(kind: str, things: Iterator[_Thing], before: float, failed: list[OSError], *, dry_run: bool) -> Freed:
    count = size = freed = freed_size = 0
    for thing in things:
        own = thing.size()
        count, size = count + 1, size + own
        if thing.last_used() >= before:
            continue
        try:
            if dry_run or thing.remove():
                freed, freed_size = freed + 1, freed_size + own
        except OSError as error:
            failed.append(error)
    return Freed(kind=kind, count=count, size=size, freed=freed, freed_size=freed_size)


def _wheels(folder: Path) -> Iterator[_Thing]:
    for shard in _list_files(folder, f"{_HEX}{{2}}"):
        for place in _list_files(shard, f"{_HEX}{{64}}"):
            files = tuple(path for path in _list_files(place, r".+") if _is_file(path))
            yield _Thing(files, place)


def _layers(folder: Path) -> Iterator[_Thing]:
    yield from _each(folder / "blobs" / "sha256", f"{_HEX}{{64}}|{_LEFT_OVER}")
    for shard in _list_files(folder / "layers", f"{_HEX}{{2}}"):
        yield from _each(shard, rf"{_HEX}{{64}}\.json|{_LEFT_OVER}")


def _notes(cache: Path) -> Iterator[_Thing]:
    for name in _NOTES:
        yield from _each(cache / name, rf"{_HEX}{{16,64}}\.json|{_LEFT_OVER}")
    for folder in _list_files(cache / "known", f"{_HEX}{{32}}"):
        yield from _each(folder, rf"(tag-.+-)?{_HEX}{{32,64}}|stage-{_HEX}{{40}}\.json|{_LEFT_OVER}")


def _each(folder: Path, pattern: str) -> Iterator[_Thing]:
    return (_Thing((path,)) for path in _list_files(folder, pattern) if _is_file(path))


def _list_files(folder: Path, pattern: str) -> list[Path]:
    """What a folder has under such names, in order; nothing where there is no folder."""
    try:
        return sorted(path for path in folder.iterdir() if re.fullmatch(pattern, path.name))
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
