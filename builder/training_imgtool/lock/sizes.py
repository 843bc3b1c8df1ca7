"""Wheels of a resolution with their sizes, which not every index tells."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.plan import Wheel
from training_imgtool.spec.requirements import normalise_name
from training_imgtool.wheels.store import WheelStore
from training_imgtool.wheels.uv import ResolvedWheel

_JOBS = 16


class Sizes:
    """Turns the rows of a resolution into wheels of the lock. Safe for several threads.

    Args:
        store: learns where each file was, and knows the index.
        path: keeps sizes by sha256 between runs.
    """

    def __init__(self, store: WheelStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._lock = threading.Lock()

    def wheels(self, resolved: tuple[ResolvedWheel, ...]) -> tuple[Wheel, ...]:
        """The wheels with their sizes: from the index's page, else from an earlier run, else from the server."""
        sizes = {row.sha256: row.size for row in resolved if row.size is not None}
        sizes = {**_read_sizes(self._path), **sizes}
        unknown = {row.sha256: row.url for row in resolved if row.sha256 not in sizes}
        if unknown:
            with ThreadPoolExecutor(min(_JOBS, len(unknown))) as pool:
                answers = dict(zip(unknown, pool.map(self._store.index.size, unknown.values()), strict=True))
            sizes |= answers
            with self._lock:
                write_cached(self._path, {**_read_sizes(self._path), **answers})
        for row in resolved:
            self._store.remember(row.sha256, row.url)
        return tuple(
            Wheel(
                name=normalise_name(row.name),
                version=row.version,
                file=row.file,
                sha256=row.sha256,
                size=sizes[row.sha256],
            )
            for row in resolved
        )


def _read_sizes(path: Path) -> dict[str, int]:
    """Sizes by sha256, which never change; a damaged file counts for nothing."""
    rows = read_cached(path)
    if not isinstance(rows, dict):
        return {}
    return {key: size for key, size in rows.items() if isinstance(size, int) and size > 0}
