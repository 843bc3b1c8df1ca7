"""What this machine remembers of a repository: its blobs, its tags and its stages, so that a small change asks little.

Memory saves requests and is never evidence: `evidence.py` decides when a push may rely on it. Every file is small, and
losing one costs requests only, so no failure to write one matters.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from training_imgtool.core.reference import Repository, Tag

_KEY_DIGITS = 32  # as in a role's tag
_NAME_DIGITS = 40


def tag_of_stage(repository: Repository, label: str, key: str) -> Tag:
    """The tag of a stage's image: the stage's label and the first digits of its key, like a role's tag."""
    return repository.tag(f"{label}-{key[:_KEY_DIGITS]}")


def make_file_name(text: str) -> str:
    """A file name for any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]


class RepositoryMemory:
    """The memory of one repository, in a folder of the machine's cache.

    Args:
        cache: the machine's cache.
        repository: which one.
        believe: False remembers nothing from earlier runs and still takes notes for later ones (`--no-cache`).
    """

    def __init__(self, cache: Path, repository: Repository, *, believe: bool = True) -> None:
        self._folder = cache / "known" / hashlib.sha256(str(repository).encode()).hexdigest()[:32]
        self._believe = believe

    def has_blob(self, digest: str) -> bool:
        """Whether the registry once confirmed the blob, or served a manifest that names it."""
        try:
            return self._believe and self._path_of(digest).exists()
        except OSError:
            return False

    def add_blobs(self, digests: Iterable[str]) -> None:
        """Notes blobs that the registry has."""
        for digest in digests:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self._path_of(digest), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))

    def has_tag(self, name: str) -> bool:
        """Whether this machine has ever seen an image under the tag."""
        return self.has_blob(f"tag-{name}")

    def add_tag(self, name: str) -> None:
        """Notes that an image has the tag."""
        self.add_blobs((f"tag-{name}",))

    def stage_file(self, tag: Tag) -> Path:
        """Where this machine keeps the manifest and config of a stage's image."""
        return self._folder / f"stage-{make_file_name(tag.name)}.json"

    def has_stage(self, tag: Tag) -> bool:
        """Whether this machine has the manifest and config of the stage's image."""
        return self._believe and self.stage_file(tag).exists()

    def forget_blobs(self, digests: Iterable[str]) -> None:
        """Forgets blobs that may be gone."""
        for digest in digests:
            with contextlib.suppress(OSError):
                self._path_of(digest).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forgets the repository: part of it is gone, so the rest may be."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path_of(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("sha256:")
