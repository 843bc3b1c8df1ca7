"""Layers' archives for tests, written entry by entry."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable

SIZE = 1234  # bytes of every file


def add_entries(tar: tarfile.TarFile, entries: Iterable[str]) -> None:
    """Adds `PATH`, `PATH/ [MODE [UID [GID]]]`, `PATH -> TARGET` or, as a hard link, `PATH => TARGET`."""
    for entry in entries:
        path, kind, target = entry.partition(" => " if " => " in entry else " -> ")
        name, *numbers = path.split(" ")
        info = tarfile.TarInfo(name)
        if target:
            info.type, info.linkname = tarfile.LNKTYPE if kind == " => " else tarfile.SYMTYPE, target
        elif name.endswith("/"):
            info.type, info.mode = tarfile.DIRTYPE, int(numbers[0], 8) if numbers else 0o755
            info.uid, info.gid = (*map(int, numbers[1:]), 0, 0)[:2]
        else:
            info.size = SIZE
        tar.addfile(info, io.BytesIO(bytes(info.size)))


def archive(*entries: str, form: int = tarfile.PAX_FORMAT) -> bytes:
    """A whole archive of `add_entries`."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        add_entries(tar, entries)
    return stream.getvalue()


def raw_header(
    name: str, *, kind: str = "0", prefix: str = "", gnu: bool = False, data: bytes = b"", size: bytes = b""
) -> bytes:
    """An entry as no library writes it: with another type, or with GNU's magic number and a prefix."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT)[:512])
    block[156:157] = kind.encode()
    block[124 : 124 + len(size)] = size
    block[345 : 345 + len(prefix)] = prefix.encode()
    if gnu:
        block[257:265] = b"ustar  \0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + bytes(-len(data) % 512)


def raw_archive(*headers: bytes) -> bytes:
    """An archive of such entries."""
    return b"".join(headers) + bytes(1024)
