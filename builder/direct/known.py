"""What this machine remembers of a repository's blobs, so that a small change costs no questions.

Two kinds of memory, each an empty file per blob: `there` (the registry confirmed it, or served a manifest
that names it) and `begun` (a push was about to send it and has not said that it ended). A blob that is
there is not asked for; one that was begun is asked for before it is sent again; a small new one is sent
at once. When the memory is wrong the registry refuses the manifest, and everything is asked for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from builder.reference import Repository


class KnownBlobs:
    """The memory of one repository. Losing it costs requests, never correctness, so no failure to write matters."""

    def __init__(self, cache: Path, repository: Repository) -> None:
        folder = cache / "known" / hashlib.sha256(str(repository).encode()).hexdigest()[:32]
        self._there = folder / "there"
        self._begun = folder / "begun"

    def there(self, digest: str) -> bool:
        """Whether the registry is believed to have the blob."""
        return self._file(self._there, digest).exists()

    def begun(self, digest: str) -> bool:
        """Whether a push that never reported its end was about to send the blob."""
        return self._file(self._begun, digest).exists()

    def begin(self, digest: str) -> None:
        """Notes that the blob is about to be sent."""
        _touch(self._file(self._begun, digest))

    def arrived(self, digests: Iterable[str]) -> None:
        """Notes that the registry has the blobs."""
        for digest in digests:
            path = self._file(self._there, digest)
            if not path.exists():
                _touch(path)
            _remove(self._file(self._begun, digest))

    def forget(self, digests: Iterable[str]) -> None:
        """Believes nothing of the blobs any more."""
        for digest in digests:
            _remove(self._file(self._there, digest))

    @staticmethod
    def _file(folder: Path, digest: str) -> Path:
        return folder / digest.removeprefix("sha256:")


def _touch(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    except OSError:
        return


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
