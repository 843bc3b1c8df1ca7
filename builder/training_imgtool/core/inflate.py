"""Inflates by the fastest library that is installed; every library inflates to the same bytes."""

from __future__ import annotations

import functools
import zlib
from typing import Any


@functools.cache
def find_isal() -> tuple[str, Any] | None:
    """Returns ISA-L's version and its module, which has zlib's interface; None if it is not installed."""
    try:
        from isal import __version__, isal_zlib
    except ImportError:
        return None
    return __version__, isal_zlib


def load_fast_library() -> Any:
    """Returns ISA-L's module, or zlib if ISA-L is not installed."""
    found = find_isal()
    return found[1] if found else zlib


def make_inflater() -> Any:
    """Makes a decompressor of raw DEFLATE streams, with `zlib.decompressobj`'s interface."""
    return load_fast_library().decompressobj(-zlib.MAX_WBITS)


def crc32(data: bytes, value: int) -> int:
    """Computes `zlib.crc32` by the fastest library that is installed."""
    return int(load_fast_library().crc32(data, value))


def inflate_errors() -> tuple[type[Exception], ...]:
    """Lists what an inflater raises for damaged data."""
    return (zlib.error, load_fast_library().error)
