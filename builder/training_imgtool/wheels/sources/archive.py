"""Packs code into a source archive: the same bytes for the same files, on every machine."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from training_imgtool.core.errors import InputError

_ROOT = "source"
_LEFT_OUT = frozenset({"__pycache__", "node_modules", ".tox", ".nox", ".git", ".hg", ".svn"})
_BUILT = frozenset({"build", "dist"})  # at the top, unless they are packages
_LEFT_OUT_FORM = re.compile(r".*\.(?:pyc|egg-info)|\..*_cache")
_LARGEST = 256 << 20  # bytes of all files


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
        for path in _find_files(top, leave_out, names=_LEFT_OUT | _BUILT):
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


def _find_files(folder: Path, leave_out: frozenset[Path], *, names: frozenset[str] = _LEFT_OUT) -> Iterator[Path]:
    """The files and links below a folder, sorted by path."""
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        path = Path(entry.path)
        if _LEFT_OUT_FORM.fullmatch(entry.name) or path in leave_out:
            continue
        if entry.name in names and not (entry.name in _BUILT and (path / "__init__.py").exists()):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not (path / "pyvenv.cfg").exists():
                yield from _find_files(path, leave_out)
        else:
            yield path
