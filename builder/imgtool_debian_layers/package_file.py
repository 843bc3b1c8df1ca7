"""Reads `.deb` files (deb(5) version 2.0), which are ar archives of `debian-binary`, `control.tar` and `data.tar`."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgtool_debian_layers.errors import DamagedError, NeedsAptError

_MAGIC = b"!<arch>\n"
_HEADER = 60  # bytes of an ar member's header
_BLOCK = 1 << 20
_LARGEST_CONTROL = 64 << 20  # bytes of one control file; the largest md5sums of Debian 12 has 3 MB
_LARGEST_FILE = 1 << 30  # bytes of one file in a package, which is held in memory
_KINDS = {
    tarfile.REGTYPE: "f",
    tarfile.AREGTYPE: "f",
    tarfile.DIRTYPE: "d",
    tarfile.SYMTYPE: "l",
    tarfile.LNKTYPE: "h",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Describes a package; `file` is the path of the package's file in an archive that the base's sources name."""

    name: str
    version: str
    architecture: str
    size: int  # bytes
    sha256: str
    file: str


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One path of a package; `kind` has the same values as `Node.kind`, `owner` is `USER:GROUP`."""

    path: str  # absolute
    kind: str
    mode: int
    owner: str
    target: str = ""
    data: bytes = b""


def read_control(path: Path) -> dict[str, bytes]:
    """Reads the control files of a package; maps names such as `control` and `postinst` to contents.

    Raises DamagedError if the file is not a package, OSError if it cannot be read.
    """
    files: dict[str, bytes] = {}
    with _open_member(path, "control.tar") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./").strip("/")
            if entry.isdir() or not name:
                continue
            content = archive.extractfile(entry) if entry.isfile() else None
            if content is None or "/" in name or entry.size > _LARGEST_CONTROL:
                raise DamagedError(f"{path.name}: {entry.name!r} is not a control file")
            files[name] = content.read()
    return files


def read_files(path: Path) -> Iterator[PackedFile]:
    """Yields the files of a package in the order of its archive.

    Raises the same errors as `read_control`, and NeedsAptError for a device or a file that is too large.
    """
    with _open_member(path, "data.tar") as archive:
        for entry in archive:
            name = _make_absolute(entry.name)
            kind = _KINDS.get(entry.type)
            if kind is None or entry.size > _LARGEST_FILE:
                raise NeedsAptError(f"{path.name}: {name} is a device, or larger than 1 GiB")
            if {"..", "."} & set(name.split("/")) or "\n" in name:
                raise DamagedError(f"{path.name}: the path {entry.name!r} is not normalized")
            content = archive.extractfile(entry) if kind == "f" else None
            target = entry.linkname if kind == "l" else _make_absolute(entry.linkname)
            owner = f"{entry.uname or entry.uid}:{entry.gname or entry.gid}"
            data = content.read() if content else b""
            yield PackedFile(name, kind, entry.mode & 0o7777, owner, target if kind in "lh" else "", data)


def _make_absolute(name: str) -> str:
    return "/" + ("" if name == "." else name.removeprefix("./").strip("/"))


@contextmanager
def _open_member(path: Path, stem: str) -> Iterator[tarfile.TarFile]:
    """Opens the tar archive that is a member of the package, as a stream."""
    zstd = _load_zstd()
    unpack_errors = (lzma.LZMAError, zlib.error, gzip.BadGzipFile, zstd.ZstdError)
    try:
        name, data = _find(path, stem)
        with (
            _open_plain(path, name, data, zstd) as plain,
            tarfile.open(fileobj=plain, mode="r|", bufsize=_BLOCK) as archive,
        ):
            yield archive
    except (tarfile.TarError, *unpack_errors, EOFError, UnicodeError) as error:
        raise DamagedError(f"{path.name}: {stem} is damaged: {error}") from error


def _find(path: Path, stem: str) -> tuple[str, bytes]:
    """Finds the member whose name begins with `stem`; returns the member's name and content."""
    with path.open("rb") as file:
        is_package = file.read(len(_MAGIC)) == _MAGIC
        while is_package and len(header := file.read(_HEADER)) == _HEADER:
            name, digits = header[:16].decode("ascii", "replace").strip().rstrip("/"), header[48:58].strip()
            if header[58:] != b"`\n" or not digits.isdigit():
                break
            size = int(digits)
            if name.startswith(f"{stem}.") or name == stem:
                return name, file.read(size)
            if name == "debian-binary":
                is_package = file.read(size + size % 2).startswith(b"2.")
            else:
                file.seek(size + size % 2, io.SEEK_CUR)
    raise DamagedError(f"{path.name}: not a Debian package of version 2 with {stem}")


def _open_plain(path: Path, name: str, data: bytes, zstd: Any) -> Any:
    packed = io.BytesIO(data)
    match name.rpartition(".")[2]:
        case "xz" | "lzma":
            return lzma.open(packed)
        case "gz":
            return gzip.open(packed)
        case "zst":
            return zstd.open(packed)
        case "tar":
            return packed
    raise NeedsAptError(f"{path.name}: {name} has an unknown compression")


def _load_zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
