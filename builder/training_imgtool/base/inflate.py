"""Inflates with ISA-L if installed, else with zlib. Both give the same bytes; ISA-L is several times faster."""

from __future__ import annotations

import functools
import zlib
from typing import Any


@functools.cache
def load_fast_library() -> Any:
    """Returns ISA-L's module, which has zlib's interface, or zlib if ISA-L is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


def make_inflater() -> Any:
    """Makes a decompressor of raw DEFLATE streams, with `zlib.decompressobj`'s interface."""
    return load_fast_library().decompressobj(-zlib.MAX_WBITS)


def crc32(data: bytes, value: int) -> int:
    """Computes `zlib.crc32` with the fastest installed library."""
    return int(load_fast_library().crc32(data, value))


def inflate_errors() -> tuple[type[Exception], ...]:
    """Lists the exceptions that a decompressor raises for damaged data."""
    return (zlib.error, load_fast_library().error)
