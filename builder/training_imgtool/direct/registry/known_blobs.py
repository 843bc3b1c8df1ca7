"""What this machine remembers of a repository's blobs, so that a small change costs no questions.

An empty file per blob that the registry confirmed, or that a manifest served from the repository names. When the
memory is wrong the registry refuses the manifest, and everything is asked for. Tags are remembered too: one that this
machine never saw is most likely about to be made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from training_imgtool.core.reference import Repository


class KnownBlobs:
    """The memory of one repository. Losing it costs requests, never correctness, so no failure to write matters."""

    def __init__(self, cache: Path, repository: Repository) -> None:
        self._folder = cache / "known" / hashlib.sha256(str(repository).encode()).hexdigest()[:32]

    def there(self, digest: str) -> bool:
        """Whether the registry is believed to have the blob."""
        try:
            return self._file(digest).exists()
        except OSError:
            return False

    def arrived(self, digests: Iterable[str]) -> None:
        """Notes that the registry has the blobs."""
        for digest in digests:
            if not self.there(digest):
                _touch(self._file(digest))

    def forget(self, digests: Iterable[str]) -> None:
        """Believes nothing of the blobs any more."""
        for digest in digests:
            _remove(self._file(digest))

    def tag_there(self, name: str) -> bool:
        """Whether this machine ever found or put an image under the tag."""
        return self.there(f"tag-{name}")

    def tag_arrived(self, name: str) -> None:
        """Notes that there is an image under the tag."""
        self.arrived((f"tag-{name}",))

    def _file(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("sha256:")


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
