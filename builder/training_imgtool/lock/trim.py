"""Finds the files of a lock's wheels that nothing in the image can open, so that images leave them out.

The answer depends on the content of every wheel, so it is in the lock: every machine leaves out the same files, and the
Dockerfile says which. `data/wheel_contents.json` has what the usual TensorFlow and CUDA wheels contain, by hash; this
machine remembers what it read itself; the rest is downloaded and read, and the build finds it in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.resources import data_file
from training_imgtool.core.threads import run_all
from training_imgtool.lock.wheel_contents import ALWAYS, WheelContents, contents_of, read_contents
from training_imgtool.plan import UnusedPath, Wheel
from training_imgtool.wheels.store import WheelStore

_AT_ONCE = 2  # wheels that are read side by side


class WheelReader:
    """What wheels contain, by their hash.

    Args:
        store: downloads wheels that have not been read before.
        path: keeps what was read between runs.
        progress: receives the downloads.
    """

    def __init__(self, store: WheelStore, path: Path, progress: Progress) -> None:
        self._store, self._path, self._progress = store, path, progress

    def unused(self, wheels: tuple[Wheel, ...]) -> tuple[UnusedPath, ...]:
        """The paths that nothing in `wheels` can open, sorted.

        Raises what `WheelStore.fetch` raises, and VerificationError for a damaged wheel.
        """
        return unused_paths(self._contents(wheels).values())

    def _contents(self, wheels: tuple[Wheel, ...]) -> Mapping[str, WheelContents]:
        shipped, remembered = json.loads(data_file("wheel_contents.json").read_bytes()), _table(read_cached(self._path))
        rows = {wheel.sha256: shipped.get(wheel.sha256) or remembered.get(wheel.sha256) for wheel in wheels}
        contents = {sha256: contents_of(row) for sha256, row in rows.items()}
        missing = tuple(wheel for wheel in wheels if contents[wheel.sha256] is None)
        if missing:
            size = sum(wheel.size for wheel in missing) / 1e6
            self._progress(Step("trim", f"reading {len(missing)} wheels, {size:.1f} MB"))
            self._store.fetch(missing, self._progress)
            read = run_all({wheel.sha256: partial(self._read, wheel) for wheel in missing}, most=_AT_ONCE)
            contents |= read
            new = {sha256: row.as_data() for sha256, row in read.items()}
            write_cached(self._path, {**_table(read_cached(self._path)), **new})
        return {sha256: row for sha256, row in contents.items() if row}

    def _read(self, wheel: Wheel) -> WheelContents:
        return read_contents(self._store.require(wheel), wheel.name)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def unused_paths(contents: Iterable[WheelContents]) -> tuple[UnusedPath, ...]:
    """The paths of rules that no file names which stays in the image, sorted.

    A file that a rule is about counts only when it stays itself, so this repeats until nothing is added.
    """
    rows = tuple(contents)
    needed: set[str] = set()
    added = {ALWAYS}
    while added:
        named = {name for row in rows for rule in added for name in row.names.get(rule, ())}
        added = named - needed
        needed |= added
    return tuple(
        sorted(
            (
                UnusedPath(path=path, size=size, rule=rule)
                for row in rows
                for path, (size, rule) in row.paths.items()
                if rule not in needed
            ),
            key=lambda unused: unused.path,
        )
    )
