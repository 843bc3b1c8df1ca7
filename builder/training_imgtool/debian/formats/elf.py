"""The soname of an ELF file, and for which machine it is (System V ABI, chapters 4 and 5; 64 bits, little endian)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_STRTAB, _SONAME = 5, 14
_SHARED = 3  # e_type ET_DYN


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library: its DT_SONAME (empty without one) and its e_machine."""

    soname: str
    machine: int


def read_library(data: bytes) -> Library | None:
    """What a shared library says of itself; None for any other file."""
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        _, kind, machine, _, _, at, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
        if kind != _SHARED:
            return None
        segments = [_SEGMENT.unpack_from(data, at + number * size) for number in range(count)]
        dynamic = next((row for row in segments if row[0] == _DYNAMIC), None)
        if dynamic is None:
            return None
        loads = [row for row in segments if row[0] == _LOAD]
        fields: dict[int, int] = {}
        for tag, value in _ENTRY.iter_unpack(data[dynamic[2] : dynamic[2] + dynamic[5] // 16 * 16]):
            if tag == 0:
                break
            fields.setdefault(tag, value)
        if _SONAME not in fields:
            return Library("", machine)
        strings = fields[_STRTAB]
        offset = next(strings - row[3] + row[2] for row in loads if row[3] <= strings < row[3] + row[5])
        start = offset + fields[_SONAME]
        return Library(data[start : data.index(b"\0", start)].decode(), machine)
    except (struct.error, StopIteration, KeyError, ValueError):
        return None
