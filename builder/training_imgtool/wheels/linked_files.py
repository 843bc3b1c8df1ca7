"""Files beside the wheels, on the pages and in the folders that UV_FIND_LINKS names, each known by its sha256."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection
from functools import cached_property

from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.wheels.index.client import MissingFileError
from training_imgtool.wheels.index.index import Index
from training_imgtool.wheels.index.page import IndexedFile


class LinkedFiles:
    """What the pages and folders have besides wheels. Safe to use from several threads.

    Args:
        open_index: opens the indexes of the machine and the spec; called only when a file is wanted.
        progress: receives a note if a page or folder cannot be read. The files are then looked for elsewhere.
    """

    def __init__(self, open_index: Callable[[], Index], progress: Progress) -> None:
        self._open_index, self._progress = open_index, progress
        self._lock = threading.Lock()

    def read(self, names: Collection[str], sha256: str, size: int) -> bytes | None:
        """The content of a file with one of these names, that hash and that size in bytes; None where there is none."""
        with self._lock:
            rows = self._rows
        for row in rows:
            if row.file in names and row.sha256 in {None, sha256}:
                content = self._read(row, size)
                if content is not None and hashlib.sha256(content).hexdigest() == sha256:
                    return content
        return None

    @cached_property
    def _rows(self) -> tuple[IndexedFile, ...]:
        try:
            self._index = self._open_index()
            return self._index.linked()
        except ImgtoolError as error:
            self._progress(Note(f"{error}; imgtool looks for Debian packages in the archives only"))
            return ()

    def _read(self, row: IndexedFile, size: int) -> bytes | None:
        try:
            return b"".join(self._index.read(row.url, limit=size))
        except MissingFileError:
            return None
        except ImgtoolError as error:
            self._progress(Note(f"{error}; imgtool looks for {row.file} elsewhere"))
            return None
