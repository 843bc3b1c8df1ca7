"""The TOML of locks that were right, kept between runs: the standard library takes 5 ms to load and to read one again.

What is kept was accepted whole, so it holds texts, numbers and lists of them, which JSON holds too. Every check of the
values is made all the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from training_imgtool.core.json_cache import read_kept, write_kept

_FORM = b"tables of a lock, form 1\n"  # to be raised when a lock's bytes give other tables


class LockMemo:
    """The place in the cache of the tables that the bytes of one lock give."""

    def __init__(self, cache: Path, data: bytes) -> None:
        self._path = cache / "locks" / f"{hashlib.sha256(_FORM + data).hexdigest()}.json"

    def table(self) -> dict[str, Any] | None:
        """The outermost table, None when none is kept or the file is not as `keep` leaves it."""
        found = read_kept(self._path)
        return found if isinstance(found, dict) else None

    def keep(self, table: dict[str, Any]) -> None:
        """Keeps the tables of a lock without errors, for the user alone; nothing happens when that is not possible."""
        write_kept(self._path, table, mode=0o600)
