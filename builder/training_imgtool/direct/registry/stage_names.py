"""How a stage's image is named, in a repository and on this machine. Loads nothing: most runs ask only this."""

from __future__ import annotations

import hashlib
from pathlib import Path

from training_imgtool.core.reference import Repository, Tag

_KEY_DIGITS = 32  # as in a role's tag
_NAME_DIGITS = 40


def tag_of_stage(repository: Repository, label: str, key: str) -> Tag:
    """The tag of a stage's image: `packages-` and the first digits of its key, like a role's."""
    return repository.tag(f"{label}-{key[:_KEY_DIGITS]}")


def stage_file(cache: Path, tag: Tag) -> Path:
    """Where this machine keeps what it knows of the stage's image."""
    return cache / "stages" / f"{file_name(str(tag))}.json"


def file_name(text: str) -> str:
    """A file's name for any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
