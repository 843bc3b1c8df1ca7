"""Reads `.deb` files: deb(5) version 2.0, an ar archive of `debian-binary`, `control.tar` and `data.tar`."""

from __future__ import annotations

import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from training_imgtool.core.errors import LocalFileError, NeedsEngineError, UsageError, VerificationError
from training_imgtool.direct.layers.codecs import decompress

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


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One path of a package: `kind` is `f`, `d`, `l` (symbolic link) or `h` (hard link); `owner` as `USER:GROUP`."""

    path: str  # absolute
    kind: str
    mode: int
    owner: str
    target: str = ""
    data: bytes = b""


def read_control(path: Path) -> dict[str, bytes]:
    """Reads the control files of a package, by name: `control`, `postinst`, `triggers`.

    Raises VerificationError for what is no package, LocalFileError when it cannot be read.
    """
    files: dict[str, bytes] = {}
    with _open_member(path, "control.tar") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./").strip("/")
            if entry.isdir() or not name:
                continue
            content = archive.extractfile(entry) if entry.isfile() else None
            if content is None or "/" in name or entry.size > _LARGEST_CONTROL:
                raise VerificationError(f"{path.name}: {entry.name!r} is no control file")
            files[name] = content.read()
    return files


def read_files(path: Path) -> Iterator[PackedFile]:
    """Yields the files of a package in the order of its archive.

    Raises as `read_control` does, and NeedsEngineError for a device or a file that is too large.
    """
    with _open_member(path, "data.tar") as archive:
        for entry in archive:
            name = _make_absolute(entry.name)
            kind = _KINDS.get(entry.type)
            if kind is None or entry.size > _LARGEST_FILE:
                raise NeedsEngineError(f"{path.name}: {name} is a device, or larger than 1 GiB")
            if {"..", "."} & set(name.split("/")) or "\n" in name:
                raise VerificationError(f"{path.name}: the path {entry.name!r} is not clean")
            content = archive.extractfile(entry) if kind == "f" else None
            target = entry.linkname if kind == "l" else _make_absolute(entry.linkname)
            owner = f"{entry.uname or entry.uid}:{entry.gname or entry.gid}"
            data = content.read() if content else b""
            yield PackedFile(name, kind, entry.mode & 0o7777, owner, target if kind in "lh" else "", data)


def _make_absolute(name: str) -> str:
    return "/" + ("" if name == "." else name.removeprefix("./").strip("/"))


@contextmanager
def _open_member(path: Path, stem: str) -> Iterator[tarfile.TarFile]:
    """Opens the tar of a member, as a stream."""
    try:
        with path.open("rb") as file:
            name, size = _find(file, path, stem)
            with tarfile.open(fileobj=BlockFile(_read_plain(file, size, name)), mode="r|", bufsize=_BLOCK) as archive:
                yield archive
    except OSError as error:
        if isinstance(error, tarfile.ReadError):
            raise VerificationError(f"{path.name}: {stem} is damaged: {error}") from error
        raise LocalFileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, UnicodeError) as error:
        raise VerificationError(f"{path.name}: {stem} is damaged: {error}") from error
    except UsageError as error:  # zstd without its library
        raise NeedsEngineError(f"{path.name}: {error.message}", hint=error.hint) from error


def _find(file: BinaryIO, path: Path, stem: str) -> tuple[str, int]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise VerificationError(f"{path.name}: no Debian package")
    while len(header := file.read(_HEADER)) == _HEADER:
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            break
        size = int(digits)
        if name == "debian-binary" and not file.read(size + size % 2).startswith(b"2."):
            break
        if name.startswith(f"{stem}.") or name == stem:
            return name, size
        if name != "debian-binary":
            file.seek(size + size % 2, 1)
    raise VerificationError(f"{path.name}: no Debian package of version 2 with {stem}")


def _read_plain(file: BinaryIO, size: int, name: str) -> Iterator[bytes]:
    blocks = _read(file, size)
    kind = name.rpartition(".")[2]
    if kind in {"xz", "lzma"}:
        return _unpack_xz(blocks)
    if kind in {"gz", "zst", "tar"}:
        return decompress(blocks)
    raise NeedsEngineError(f"{name}: an unknown compression")


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (block := file.read(min(size, _BLOCK))):
        size -= len(block)
        yield block


def _unpack_xz(blocks: Iterator[bytes]) -> Iterator[bytes]:
    engine = lzma.LZMADecompressor()
    for block in blocks:
        if engine.eof:
            return
        data = engine.decompress(block, _BLOCK)
        yield data
        while not engine.eof and not engine.needs_input:
            yield engine.decompress(b"", _BLOCK)


class BlockFile(io.RawIOBase):
    """A read-only file over blocks of any size."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""
        self._at = 0

    def readable(self) -> bool:
        """Says yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills a part of `buffer`; 0 at the end."""
        while self._at == len(self._rest):
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest, self._at = block, 0
        count = min(len(buffer), len(self._rest) - self._at)
        buffer[:count] = self._rest[self._at : self._at + count]
        self._at += count
        return count
