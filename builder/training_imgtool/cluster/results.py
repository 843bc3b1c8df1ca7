"""What a run wrote: the files of its job directory, and those that are gone with its containers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.context.own_files import JOB_MARK

_MOST = 20_000  # files looked at
_SHOWN = 3
_CACHES = re.compile(  # what programs write for themselves and would write again
    r"\A/(?:tmp/(?:tmp|pip-|matplotlib|hypertune|pymp-)[^/]*|var/(?:tmp|log|cache|lib)|run|proc|sys|dev|etc)(?:/|\Z)"
    r"|/\.[^/]+(?:/|\Z)|/__pycache__(?:/|\Z)|\.py[co]\Z|\A/tmp\Z"
    r"|/(?:tensorflow_datasets|nltk_data|core)(?:/|\Z)|\A/root\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file of the job directory that a run wrote: its path in there, and its bytes."""

    path: str
    size: int


Snapshot = Mapping[str, tuple[int, int]]


def take_snapshot(folder: Path) -> Snapshot:
    """Maps the files below `folder` to their times in nanoseconds and bytes; one that cannot be read is left out."""
    found: dict[str, tuple[int, int]] = {}
    for where, _, files in os.walk(folder):
        for name in files:
            path = Path(where, name)
            try:
                state = path.lstat()
            except OSError:
                continue
            found[path.relative_to(folder).as_posix()] = (state.st_mtime_ns, state.st_size)
        if len(found) > _MOST:
            break
    return found


def list_written(before: Snapshot, after: Snapshot) -> tuple[WrittenFile, ...]:
    """Lists what is new or changed, the largest first."""
    new = [WrittenFile(path=path, size=state[1]) for path, state in after.items() if before.get(path) != state]
    return tuple(sorted((file for file in new if file.path != JOB_MARK), key=lambda file: (-file.size, file.path)))


def choose_lost(changed: Iterable[str], mounts: Iterable[str]) -> tuple[str, ...]:
    """Chooses from the paths that a container changed those that a program may have meant to keep.

    Args:
        changed: files and folders, as the engine lists them.
        mounts: where folders of this machine are mounted, which stay.
    """
    paths = {*changed}
    above = {str(parent) for path in paths for parent in Path(path).parents} | {*mounts}
    return tuple(sorted(path for path in paths - above if not _CACHES.search(path)))


def describe_names(names: Iterable[str]) -> str:
    """Formats the first names, and how many more there are."""
    listed = [*names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN])}{more}"
