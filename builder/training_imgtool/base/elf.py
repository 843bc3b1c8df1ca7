"""Reads, from an ELF file, what the dynamic loader uses: the name, the machine and the needed libraries."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2  # p_type
_NEEDED, _STRTAB, _STRSZ, _SONAME = 1, 5, 10, 14  # d_tag
_SHARED = 3  # e_type ET_DYN
_MOST = 64 << 20  # bytes of one table; TensorFlow 1.14 has over 16 MiB of names


@dataclass(frozen=True, slots=True, order=True)
class Library:
    """A shared library.

    Attributes:
        soname: its DT_SONAME; empty if it has none.
        machine: its e_machine.
        needed: its DT_NEEDED, in their order.
    """

    soname: str
    machine: int
    needed: tuple[str, ...] = ()


Read = Callable[[int, int], bytes]


def read_library(read: Read) -> Library | None:
    """Reads the header of a 64-bit shared library; returns None for any other file.

    Args:
        read: returns a number of the file's bytes from an offset on; fewer at the end of the file.
    """
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size or head[:6] != b"\x7fELF\x02\x01":
        return None
    _, kind, machine, _, _, at, _, _, _, size, count, *_ = _HEADER.unpack(head)
    if kind != _SHARED or size < _SEGMENT.size:
        return None
    try:
        table = _read_table(read, at, size * count)
        segments = [_SEGMENT.unpack_from(table, number * size) for number in range(count)]
        dynamic = next((row for row in segments if row[0] == _DYNAMIC), None)
        if dynamic is None:
            return None
        fields: dict[int, list[int]] = {}
        for tag, value in _ENTRY.iter_unpack(_read_table(read, dynamic[2], dynamic[5] // _ENTRY.size * _ENTRY.size)):
            if tag == 0:
                break
            fields.setdefault(tag, []).append(value)
        names = [*fields.get(_SONAME, ())[:1], *fields.get(_NEEDED, ())]
        if not names:
            return Library("", machine)
        start = fields[_STRTAB][0]
        offset = next(
            start - row[3] + row[2] for row in segments if row[0] == _LOAD and row[3] <= start < row[3] + row[5]
        )
        strings = _read_table(read, offset, fields[_STRSZ][0])
        texts = tuple(strings[name : strings.index(b"\0", name)].decode() for name in names)
    except (struct.error, StopIteration, KeyError, ValueError):
        return None
    return Library(texts[0], machine, texts[1:]) if _SONAME in fields else Library("", machine, texts)


def _read_table(read: Read, offset: int, size: int) -> bytes:
    """Reads a table of an ELF file; raises ValueError if the table is too large or the file ends within the table."""
    if size > _MOST:
        raise ValueError(size)
    data = read(offset, size)
    if len(data) < size:
        raise ValueError(offset)
    return data
