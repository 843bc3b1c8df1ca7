"""Shared libraries as small as the loader's tables allow."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def make_library(soname: str = "", needed: Iterable[str] = (), *, kind: int = 3, moved: bool = True) -> bytes:
    """An ELF file for x86-64 with a dynamic section.

    Args:
        soname: its DT_SONAME; none if empty.
        needed: its DT_NEEDED.
        kind: the type of the file; 3 is a shared library.
        moved: whether the strings lie at another address than their offset in the file, as after the linker.
    """
    strings = b"\0"
    entries = []
    for tag, name in ((14, soname), *((1, name) for name in needed)):
        if name:
            entries.append((tag, len(strings)))
            strings += name.encode() + b"\0"
    base = 0x1000 if moved else 0
    at = 64 + 2 * 56
    entries += [(5, base + at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = at + len(strings) + len(dynamic)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", kind, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, base, base, size, size, 4096)
    start = at + len(strings)
    section = struct.pack("<IIQQQQQQ", 2, 4, start, base + start, base + start, len(dynamic), len(dynamic), 8)
    return header + load + section + strings + dynamic
