"""A deterministic DEFLATE coder for tar headers, and gzip files that consist of pieces (RFC 1951, RFC 1952).

A piece is an open stream: whole blocks, none of them marked as the last one, up to a byte's end. Pieces of any origin
can follow each other in one gzip member, which every reader takes; some readers ignore all members after the first.

Speed matters: a TensorFlow stack has tens of thousands of headers. Codes are kept as strings of "0" and
"1" in the order they go out; one join and one `int` make the bytes, which is as fast as a zlib object per
header and does not depend on zlib's version.
"""

from __future__ import annotations

import re
from functools import cache

from training_imgtool.direct.layers.block_inflater import combine_crc32

GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, system unknown
EMPTY_LAST = b"\x03\x00"  # a last block without content
_EMPTY_STORED = b"\x00\x00\xff\xff"  # what follows the three bits of its header: a block that ends with a byte
_HEADER_BITS = 3  # of a block
_STORED_MOST = 0xFFFF
_END_OF_BLOCK = "0000000"
_LONGEST_MATCH = 258
_MOST_ZEROS = 1536  # in one run; more than a header and its padding hold
_RUNS = re.compile(rb"\0{4,}|[^\0]+|\0+")


def _make_literal_code(value: int) -> str:
    if value < 144:
        return f"{0x30 + value:08b}"
    return f"{0x190 + value - 144:09b}"


def _match_code(length: int) -> str:
    """Encodes a match of `length` (3 to 258) at distance 1."""
    if length == _LONGEST_MATCH:
        symbol, extra, bits = 285, 0, 0
    else:
        bits = max(0, (length - 3).bit_length() - 3)
        symbol = 257 + 4 * bits + ((length - 3) >> bits)
        extra = (length - 3) & ((1 << bits) - 1)
    code = f"{symbol - 256:07b}" if symbol < 280 else f"{0xC0 + symbol - 280:08b}"
    return code + (f"{extra:0{bits}b}"[::-1] if bits else "") + "00000"


@cache
def _make_zeros_code(count: int) -> str:
    code, count = _LITERALS[0], count - 1
    while count > _LONGEST_MATCH:
        step = _LONGEST_MATCH if count - _LONGEST_MATCH >= 3 else count - 3
        code += _match_code(step)
        count -= step
    return code + (_match_code(count) if count >= 3 else _LITERALS[0] * count)


_LITERALS = tuple(_make_literal_code(value) for value in range(256))


def encode_fixed(data: bytes) -> bytes:
    """Encodes `data` as one piece with fixed codes; meant for headers, right for anything."""
    parts = ["010"]  # not the last block, fixed codes (each field least bit first)
    for run in _RUNS.findall(data):
        if run[0] == 0 and len(run) <= _MOST_ZEROS:
            parts.append(_make_zeros_code(len(run)))
        else:
            parts.extend(map(_LITERALS.__getitem__, run))
    parts.append(_END_OF_BLOCK)
    bits = "".join(parts)
    used = len(bits) % 8
    piece = int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")
    return piece + close_byte(8 - used if used else 0)


def encode_stored(data: bytes) -> bytes:
    """Encodes `data` as one piece without compression."""
    parts = []
    for start in range(0, len(data), _STORED_MOST):
        block = data[start : start + _STORED_MOST]
        length = len(block)
        parts.append(b"\0" + length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little") + block)
    return b"".join(parts)


def close_byte(unused: int) -> bytes:
    """Returns what makes blocks a piece whose last byte has `unused` bits, all of them 0: an empty stored block.

    Three of the bits are the header of that block; where fewer are left, it begins in a byte of its own.
    """
    if not unused:
        return b""
    return _EMPTY_STORED if unused >= _HEADER_BITS else b"\0" + _EMPTY_STORED


class Ending:
    """The end of a gzip file whose pieces are added one by one."""

    def __init__(self) -> None:
        self._crc = self._size = 0

    def add(self, crc: int, size: int) -> None:
        """Counts a piece whose content has this CRC-32 and this size."""
        self._crc, self._size = combine_crc32(self._crc, crc, size), self._size + size

    def make(self) -> bytes:
        """Returns a last block without content and gzip's trailer."""
        return EMPTY_LAST + self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
