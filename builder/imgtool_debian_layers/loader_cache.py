"""Reads and writes /etc/ld.so.cache as glibc's ldconfig (elf/cache.c, elf/stringtable.c): format 1.1, no hwcaps."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from imgtool_debian_layers.errors import NeedsAptError

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION = struct.Struct("<II")
_SECTION = struct.Struct("<IIII")
_EXTENSION_MAGIC = 0xEAA42174
_GENERATOR = 0
_LITTLE_ENDIAN = 2
FLAGS: Mapping[int, int] = {62: 0x0303, 183: 0x0A03}
"""The flags of a library by its e_machine: x86-64 and AArch64."""


@dataclass(frozen=True, slots=True)
class CachedLibrary:
    """One library in the cache, for which `ldconfig -p` prints one line."""

    soname: str
    path: str
    flags: int
    os_version: int = 0
    hwcap: int = 0


@dataclass(frozen=True, slots=True)
class LoaderCache:
    """The content of the file: the libraries in their order, and the name of the program that wrote the file."""

    libraries: tuple[CachedLibrary, ...]
    generator: bytes


def read_cache(data: bytes) -> LoaderCache:
    """Reads a cache; raises NeedsAptError for another format, and for libraries for hardware capabilities."""
    try:
        magic, count, _, _, extension = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise NeedsAptError("the base's /etc/ld.so.cache has a format that imgtool does not write")
        rows = [_ENTRY.unpack_from(data, _HEADER.size + number * _ENTRY.size) for number in range(count)]
        libraries = tuple(
            CachedLibrary(_read_text(data, key), _read_text(data, value), flags, version, hwcap)
            for flags, key, value, version, hwcap in rows
        )
        generator = _make_generator_section(data, extension)
    except (struct.error, ValueError) as error:
        raise NeedsAptError("the base's /etc/ld.so.cache is damaged") from error
    return LoaderCache(libraries, generator)


def write_cache(cache: LoaderCache) -> bytes:
    """Writes the file's bytes."""
    ordered = sorted(cache.libraries, key=functools.cmp_to_key(_compare))
    offsets, strings = _make_string_table({text for row in ordered for text in (row.soname, row.path)})
    start = _HEADER.size + _ENTRY.size * len(ordered)
    entries = b"".join(
        _ENTRY.pack(row.flags, start + offsets[row.soname], start + offsets[row.path], row.os_version, row.hwcap)
        for row in ordered
    )
    end = start + len(strings)
    padding = bytes(-end % 4)
    extension = end + len(padding)
    after = _EXTENSION.size + _SECTION.size
    header = _HEADER.pack(_MAGIC, len(ordered), len(strings), _LITTLE_ENDIAN, extension)
    tail = _EXTENSION.pack(_EXTENSION_MAGIC, 1) + _SECTION.pack(_GENERATOR, 0, extension + after, len(cache.generator))
    return header + entries + strings + padding + tail + cache.generator


def list_folders(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Lists the folders that ldconfig searches, in ldconfig's order: the configured folders, then the system's folders.

    Args:
        texts: /etc/ld.so.conf and the files of /etc/ld.so.conf.d by their path.
    """
    folders: dict[str, None] = {}
    for line in _read_configuration(texts.get("/etc/ld.so.conf", "")):
        if line.startswith("include"):
            for path in sorted(texts):
                if path.startswith("/etc/ld.so.conf.d/") and path.endswith(".conf"):
                    folders |= dict.fromkeys(_read_configuration(texts[path]))
        else:
            folders[line] = None
    return (*(folder.rstrip("/") for folder in folders), "/lib", "/usr/lib")


def _read_configuration(text: str) -> Iterable[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _make_generator_section(data: bytes, extension: int) -> bytes:
    if not extension:
        return b""
    magic, count = _EXTENSION.unpack_from(data, extension)
    rows = [_SECTION.unpack_from(data, extension + _EXTENSION.size + number * _SECTION.size) for number in range(count)]
    if magic != _EXTENSION_MAGIC or [row[0] for row in rows] != [_GENERATOR]:
        raise NeedsAptError("the base's /etc/ld.so.cache names libraries for hardware capabilities")
    return data[rows[0][2] : rows[0][2] + rows[0][3]]


def _read_text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("utf-8", "surrogateescape")


def _compare(left: CachedLibrary, right: CachedLibrary) -> int:
    """Compares as ldconfig sorts: descending names, with numbers by value, then descending flags and capabilities."""
    order = _compare_names(right.soname, left.soname)
    return order or (right.flags - left.flags) or (right.hwcap - left.hwcap)


def _compare_names(left: str, right: str) -> int:
    """Compares as `_dl_cache_libcmp` (sysdeps/generic/dl-cache.h)."""
    at, other = 0, 0
    while at < len(left):
        mine, theirs = left[at], right[other] if other < len(right) else ""
        if mine.isdigit():
            if not theirs.isdigit():
                return 1
            value, at = _number(left, at)
            of_other, other = _number(right, other)
            if value != of_other:
                return value - of_other
        elif theirs.isdigit():
            return -1
        elif mine != theirs:
            return ord(mine) - (ord(theirs) if theirs else 0)
        else:
            at, other = at + 1, other + 1
    return -ord(right[other]) if other < len(right) else 0


def _number(text: str, at: int) -> tuple[int, int]:
    end = at
    while end < len(text) and text[end].isdigit():
        end += 1
    return int(text[at:end]), end


def _make_string_table(texts: set[str]) -> tuple[dict[str, int], bytes]:
    """Makes a table of texts. A text that is the end of a longer text shares the bytes of the longer text."""
    raw = {text: text.encode("utf-8", "surrogateescape") for text in texts}
    ordered = sorted(raw, key=lambda text: raw[text][::-1], reverse=True)
    offsets: dict[str, int] = {}
    parts: list[bytes] = []
    size = 0
    previous, start = b"", 0
    for text in ordered:
        data = raw[text]
        if previous.endswith(data) and previous:
            offsets[text] = start + len(previous) - len(data)
            continue
        offsets[text], start, previous = size, size, data
        parts.append(data + b"\0")
        size += len(data) + 1
    return offsets, b"".join(parts)
