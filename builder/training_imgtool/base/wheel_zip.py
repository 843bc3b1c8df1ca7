"""Reads wheels: the zip directory, each member's DEFLATE stream, and each member's bytes in blocks.

Python's `zipfile` reads the zip directory, as it does in pip (including zip64, data descriptors and odd names). ISA-L
inflates the streams several times faster than zlib.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import InputError, LocalFileError, NeedsEngineError, VerificationError
from training_imgtool.base.image_limits import find_path_fault
from training_imgtool.base.inflate import crc32, inflate_errors, make_inflater

_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")
_UTF8 = 0x800
_LOCAL_HEADER = 30  # bytes of a local header before the name (APPNOTE 4.3.7)
_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED = 0x1 | 0x40  # APPNOTE 4.4.4, bits 0 and 6
_PATCHED = 0x20
_BLOCK = 1 << 20
MOST_READ = 16 << 20
"""The most bytes of a member that imgtool reads whole: metadata, RECORD, a script, a source to compile."""
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, UnicodeDecodeError)
"""The errors of `zipfile` for a damaged archive, an unknown compression (NotImplementedError), an encrypted member
(RuntimeError), and a name that is no text (UnicodeDecodeError)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file in a wheel.

    Attributes:
        header: the local header's offset in the file.
        compressed: bytes of the stream in the wheel.
        size: bytes of the content.
        executable: whether pip gives it mode 755.
    """

    name: str
    header: int
    deflated: bool
    compressed: int
    size: int
    crc: int
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """A wheel on this machine; `sha256` comes from the lock, and `members` are in the order of the zip directory."""

    path: Path
    sha256: str
    members: tuple[Member, ...]

    def __hash__(self) -> int:
        return hash(self.sha256)


def open_wheel(path: Path, sha256: str) -> WheelFile:
    """Reads the zip directory of the wheel at `path`.

    Raises:
        LocalFileError: the file cannot be read.
        VerificationError: the file is not a zip file, or a member has a name that an image cannot contain.
        NeedsEngineError: only an engine can unpack one of the members.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist()}  # pip installs the last of two equal names
    except OSError as error:
        raise LocalFileError(f"{path}: cannot be read: {error.strerror}") from error
    except ZIP_ERRORS as error:
        raise _damage_error(path, str(error)) from error
    return WheelFile(
        path=path,
        sha256=sha256,
        members=tuple(_read_member(path, info) for info in infos.values() if not info.filename.endswith("/")),
    )


def _read_member(path: Path, info: zipfile.ZipInfo) -> Member:
    fault = find_path_fault(info.filename)
    if fault or _UNSAFE.search(info.filename):
        message = f"{path.name}: {info.filename[:80]!r} is not a name that a file in an image can have"
        hint = "use another version of the package, and report the fault to the package's publishers"
        raise InputError(f"{message}: {fault}" if fault else message, hint=hint)
    if info.flag_bits & (_ENCRYPTED | _PATCHED) or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NeedsEngineError(
            f"{path.name}: {info.filename} is encrypted or compressed with method {info.compress_type}"
        )
    if not 0 <= info.header_offset < 1 << 62:
        raise _damage_error(path, f"{info.filename} lies outside it")
    mode = info.external_attr >> 16
    return Member(
        name=info.filename,
        header=info.header_offset,
        deflated=info.compress_type == zipfile.ZIP_DEFLATED,
        compressed=info.compress_size,
        size=info.file_size,
        crc=info.CRC,
        executable=bool(mode and stat.S_ISREG(mode) and mode & 0o111),
    )


def check_hash(wheel: WheelFile) -> None:
    """Raises VerificationError if the wheel does not have the sha256 of the lock."""
    with wheel.path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != wheel.sha256:
        raise VerificationError(
            f"{wheel.path.name}: sha256 is {actual}, the lock says {wheel.sha256}",
            hint=f"remove {wheel.path} and run again; if the error comes back, the index has another file",
        )


@contextmanager
def open_descriptor(wheel: WheelFile) -> Iterator[int]:
    """Opens the wheel and yields its file descriptor, for `stream`."""
    try:
        descriptor = os.open(wheel.path, os.O_RDONLY)
    except OSError as error:
        raise LocalFileError(f"{wheel.path}: cannot be read: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def stream(descriptor: int, wheel: WheelFile, member: Member) -> Iterator[bytes]:
    """Yields the member's stream as the wheel contains it, in blocks of at most 1 MiB."""
    guess = _LOCAL_HEADER + len(member.name.encode()) + 64  # most extra fields are shorter
    head = os.pread(descriptor, min(guess + member.compressed, _BLOCK), member.header)
    if head[:4] != _SIGNATURE:
        raise _damage_error(wheel.path, f"{member.name} has no local header")
    named = head[_LOCAL_HEADER : _LOCAL_HEADER + int.from_bytes(head[26:28], "little")]
    encoding = "utf-8" if int.from_bytes(head[6:8], "little") & _UTF8 else "cp437"
    if named.decode(encoding, errors="replace") != member.name:
        raise _damage_error(wheel.path, f"{member.name} has another name in its local header")
    start = _LOCAL_HEADER + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    first = head[start : start + member.compressed]
    left, offset = member.compressed - len(first), member.header + max(start, len(head))
    if first:
        yield first
    while left:
        block = os.pread(descriptor, min(left, _BLOCK), offset)
        if not block:
            raise _damage_error(wheel.path, f"{member.name} ends early")
        left, offset = left - len(block), offset + len(block)
        yield block


def read_content(wheel: WheelFile, member: Member, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the content of a member whose stream is `blocks`, in blocks of at most 1 MiB.

    Raises VerificationError at the first byte beyond the size in the zip directory, or if the size or CRC-32 differs at
    the end.
    """
    crc, size = 0, 0
    for block in _inflate(wheel, member, blocks) if member.deflated else blocks:
        crc, size = crc32(block, crc), size + len(block)
        if size > member.size:
            break
        yield block
    if size != member.size or crc != member.crc:
        raise _damage_error(wheel.path, f"{member.name}: size or CRC-32 differs from the zip directory")


def _inflate(wheel: WheelFile, member: Member, blocks: Iterator[bytes]) -> Iterator[bytes]:
    engine, left = make_inflater(), b""
    try:
        for block in blocks:
            left = block
            while left and not engine.eof:
                yield engine.decompress(left, _BLOCK)
                left = engine.unconsumed_tail
            if left:
                break
        while not engine.eof and (rest := engine.decompress(b"", _BLOCK)):
            yield rest
    except inflate_errors() as error:
        raise _damage_error(wheel.path, f"{member.name}: {error}") from error
    if not engine.eof or engine.unused_data or left:
        raise _damage_error(wheel.path, f"{member.name}: the stream is longer or shorter than the directory says")


class MemberReader:
    """Reads parts of a member's content. To go back, the reader inflates the member again from the start."""

    def __init__(self, wheel: WheelFile, member: Member, descriptor: int) -> None:
        self._wheel, self._member, self._descriptor = wheel, member, descriptor
        self._blocks: Iterator[bytes] = iter(())
        self._start, self._block = member.size, b""

    def __call__(self, offset: int, size: int) -> bytes:
        """Returns `size` content bytes from `offset` on, or fewer at the end. Raises what `read_content` raises."""
        if offset < self._start:
            stored = stream(self._descriptor, self._wheel, self._member)
            self._blocks = read_content(self._wheel, self._member, stored)
            self._start, self._block = 0, b""
        parts: list[bytes] = []
        while size and (self._start + len(self._block) > offset or self._advance()):
            part = self._block[max(0, offset - self._start) :][:size]
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def _advance(self) -> bool:
        self._start += len(self._block)
        self._block = next(self._blocks, b"")
        return bool(self._block)


def read(wheel: WheelFile, member: Member) -> bytes:
    """Reads the member's whole content; raises VerificationError if it is too large for memory."""
    if member.size > MOST_READ:
        raise _damage_error(wheel.path, f"{member.name} has {member.size} bytes; {MOST_READ} is the most for it")
    with open_descriptor(wheel) as descriptor:
        return b"".join(read_content(wheel, member, stream(descriptor, wheel, member)))


def starts_with(wheel: WheelFile, member: Member, start: bytes) -> bool:
    """Returns whether the member's content begins with `start`; reads no more than necessary."""
    with open_descriptor(wheel) as descriptor:
        return next(read_content(wheel, member, stream(descriptor, wheel, member)), b"").startswith(start)


def hash_content(wheel: WheelFile, member: Member, digest: hashlib._Hash) -> None:
    """Updates a hash with the member's content."""
    with open_descriptor(wheel) as descriptor:
        for block in read_content(wheel, member, stream(descriptor, wheel, member)):
            digest.update(block)


def _damage_error(path: Path, what: str) -> VerificationError:
    return VerificationError(f"{path.name}: damaged wheel: {what}", hint=f"remove {path} and run again")
