"""Code that requirements name, packed as an archive, with its hash: what a wheel of the lock is built from."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from training_imgtool.context.own_files import list_own_files
from training_imgtool.core.errors import InputError
from training_imgtool.spec.source_requirements import is_archive, parse_git
from training_imgtool.wheels.sources.archive import pack_folder
from training_imgtool.wheels.sources.git import Git

_HEXADECIMAL = re.compile(r"[0-9a-f]{7,64}")  # a commit, and not a version such as 1
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCode:
    """An archive of code.

    Attributes:
        path: the archive, for as long as its folder exists.
        sha256: its hash.
        origin: what was packed, as the requirements name it.
        commit: the commit of a Git repository, else empty.
    """

    path: Path
    sha256: str
    origin: str
    commit: str = ""

    @property
    def label(self) -> str:
        """What was packed, in a few letters, for progress."""
        last = self.origin.partition("#")[0].rpartition("/")[2]
        return "of the project" if last in {".", ".."} else last

    @property
    def version(self) -> str:
        """The version that a Git tag in the origin names, such as 1.2 for `@v1.2`; else empty."""
        revision = parse_git(self.origin).revision if self.origin.startswith("git+") else ""
        try:
            return str(Version(revision.rpartition("/")[2])) if not _HEXADECIMAL.fullmatch(revision) else ""
        except InvalidVersion:
            return ""

    @property
    def suffix(self) -> str:
        """The end of the archive's name."""
        return next((end for end in (".tar.gz", ".zip") if self.path.name.endswith(end)), ".tar")


class Packer:
    """Packs code into a folder.

    Args:
        spec_folder: where relative paths start.
        git: reads repositories.
        work: a folder for the archive; a local archive is used where it lies.
        largest_file: leaves larger files of a folder out, in bytes.
        leave_out: further paths to leave out, such as a spec without a lock.
    """

    def __init__(
        self,
        spec_folder: Path,
        git: Git,
        work: Path,
        *,
        largest_file: int | None = None,
        leave_out: frozenset[Path] = frozenset(),
    ) -> None:
        self._spec_folder, self._git, self._work = spec_folder, git, work
        self._largest_file, self._leave_out = largest_file, leave_out

    def pack(self, origin: str, commit: str) -> PackedCode:
        """Packs what `origin` names: a path relative to the spec, or `git+URL@REVISION`, of which it takes `commit`.

        Raises InputError for code that is not there, and what Git raises.
        """
        path = self._spec_folder / origin if is_archive(origin) else self._work / "source.tar"
        if origin.startswith("git+"):
            place = parse_git(origin)
            path = self._work / "source.tar"
            with path.open("wb") as stream:
                self._git.pack(place.url, commit, place.subdirectory, stream)
        elif not is_archive(origin):
            require_project(self._spec_folder, origin)
            with path.open("wb") as stream:
                folder, leave_out = self._spec_folder / origin, own_paths(self._spec_folder) | self._leave_out
                pack_folder(folder, stream, largest_file=self._largest_file, leave_out=leave_out)
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise InputError(error.strerror or str(error)) from error
        return PackedCode(path=path, sha256=digest, origin=origin, commit=commit)


def own_paths(spec_folder: Path, *names: str) -> frozenset[Path]:
    """Returns the paths of imgtool's own files in the spec's folder, and of `names`: no package depends on them."""
    top = spec_folder.resolve()
    return frozenset(top / name for name in (*list_own_files(spec_folder), *names))


def require_project(spec_folder: Path, origin: str) -> None:
    """Raises InputError for a folder that pip could not install."""
    if not (spec_folder / origin).is_dir():
        raise InputError("there is no such folder")
    if not any((spec_folder / origin / name).is_file() for name in _PROJECT_FILES):
        raise InputError(
            f"the folder has no {', no '.join(_PROJECT_FILES)}",
            hint="name the folder of a project; code without one enters the image as `trainer: {include: [...]}`",
        )
