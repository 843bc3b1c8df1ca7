"""What the files of a project are asked: a value with its place, the text of a file, a release that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.versions.matrix import Matrix, version_key

_LARGEST = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Clue:
    """A value and the line or file that says it."""

    value: str
    where: str


def read_text(path: Path) -> str:
    """The text of a file; empty when it is missing, too large, or not text."""
    try:
        return path.read_text(encoding="utf-8-sig") if path.is_file() and path.stat().st_size <= _LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""


def find_newest(matrix: Matrix, fits: Callable[[str], bool], where: str) -> Clue | None:
    """The newest release that fits, a recommended one of its minor first."""
    minors = sorted(matrix.minors.values(), key=lambda minor: version_key(minor.name), reverse=True)
    for minor in minors:
        for version in (minor.recommended, *sorted(minor.releases, key=version_key, reverse=True)):
            if fits(version):
                return Clue(version, where)
    return None
