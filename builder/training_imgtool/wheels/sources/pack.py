"""Packs code that requirements name into an archive: the same bytes for the same files, on every machine."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from packaging.version import InvalidVersion, Version

from training_imgtool.context.own_files import is_litter, is_litter_folder, list_own_files
from training_imgtool.core.errors import InputError
from training_imgtool.spec.source_requirements import is_archive, parse_git
from training_imgtool.wheels.sources.git import Git

_HEXADECIMAL = re.compile(r"[0-9a-f]{7,64}")  # a commit, and not a version such as 1
_ROOT = "source"
_BUILT = frozenset({"build", "dist"})  # at the top, unless they are packages
_LEFT_OUT = re.compile(r".*\.egg-info|\..*_cache")
_LARGEST = 256 << 20  # bytes of all files
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
                writer = TreeWriter(stream)
                self._git.read(place.url, commit, place.subdirectory, writer)
                writer.finish()
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


class TreeWriter:
    """Writes files into a tar archive, in the order of the calls, with one date and owner and two modes.

    Args:
        stream: where the archive goes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - finish closes it
        self._bytes = 0

    def add(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Adds a file; raises InputError when all files together are too large."""
        self._bytes += len(content)
        if self._bytes > _LARGEST:
            raise InputError(
                f"the folder holds more than {_LARGEST >> 20} MiB, too much for a package's source",
                hint="move data out of it, or name a folder below it that holds the package alone",
            )
        member = _make_member(path)
        member.size = len(content)
        member.mode = 0o755 if executable else 0o644
        self._tar.addfile(member, io.BytesIO(content))

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link."""
        member = _make_member(path)
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
        self._tar.addfile(member)

    def finish(self) -> None:
        """Writes the archive's end."""
        self._tar.close()


def _make_member(path: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"{_ROOT}/{path}")
    member.mtime = 0
    return member


def pack_folder(
    folder: Path, stream: BinaryIO, *, largest_file: int | None = None, leave_out: frozenset[Path] = frozenset()
) -> None:
    """Packs a folder without what builds, tools and version control leave in it.

    Args:
        folder: a folder of this machine.
        stream: where the archive goes.
        largest_file: leaves larger files out, in bytes.
        leave_out: files and folders to leave out, as absolute paths without links.

    Raises InputError for a folder that cannot be read or is too large.
    """
    writer = TreeWriter(stream)
    try:
        top = folder.resolve()
        for path in _find_files(top, leave_out, names=_BUILT):
            state = path.lstat()
            name = path.relative_to(top).as_posix()
            if stat.S_ISLNK(state.st_mode):
                writer.link(name, str(path.readlink()))
            elif stat.S_ISREG(state.st_mode) and (largest_file is None or state.st_size <= largest_file):
                writer.add(name, path.read_bytes(), executable=bool(state.st_mode & 0o100))
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error
    writer.finish()


def hash_folder(folder: Path, *, leave_out: frozenset[Path] = frozenset()) -> str:
    """Returns the sha256 of the archive that `pack_folder` makes, in hexadecimal; raises as it does."""
    digest = _Digest()
    pack_folder(folder, digest, leave_out=leave_out)  # type: ignore[arg-type]  # tarfile needs write() and tell() alone
    return digest.hexdigest


class _Digest:
    """A stream that hashes what it is given."""

    def __init__(self) -> None:
        self._hash, self._at = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    @property
    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _find_files(folder: Path, leave_out: frozenset[Path], *, names: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Finds the files and links below a folder, sorted by path."""
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = Path(entry.path)
        if is_litter(entry.name) or _LEFT_OUT.fullmatch(entry.name) or path in leave_out:
            continue
        if entry.name in names and not (entry.name in _BUILT and (path / "__init__.py").exists()):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not is_litter_folder(entry.name, os.listdir(path)):  # noqa: PTH208 - names only
                yield from _find_files(path, leave_out)
        else:
            yield path
