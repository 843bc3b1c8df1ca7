"""A deterministic DEFLATE coder for tar headers, and gzip's framing (RFC 1951, RFC 1952).

Speed matters: a TensorFlow stack has tens of thousands of headers. Codes are kept as strings of "0" and
"1" in the order they go out; one join and one `int` make the bytes, which is as fast as a zlib object per
header and does not depend on zlib's version.
"""

from __future__ import annotations

import re
import zlib
from functools import cache

GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, system unknown

EMPTY_FINAL = b"\x03\x00"  # a last block without content
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
    """A match of `length` (3 to 258) at distance 1."""
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
    """`data` as one complete DEFLATE stream of fixed codes; meant for headers, right for anything."""
    parts = ["110"]  # last block, fixed codes (each field least bit first)
    for run in _RUNS.findall(data):
        if run[0] == 0 and len(run) <= _MOST_ZEROS:
            parts.append(_make_zeros_code(len(run)))
        else:
            parts.extend(map(_LITERALS.__getitem__, run))
    parts.append(_END_OF_BLOCK)
    bits = "".join(parts)
    return int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")


def encode_stored(data: bytes) -> bytes:
    """`data` as one complete DEFLATE stream without compression."""
    parts = []
    for start in range(0, len(data), _STORED_MOST):
        block = data[start : start + _STORED_MOST]
        length = len(block)
        parts.append(b"\0" + length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little") + block)
    return b"".join(parts) + EMPTY_FINAL


def make_trailer(crc: int, size: int) -> bytes:
    """What ends a gzip member: CRC-32 and size of the content, modulo 2**32."""
    return crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")


def make_member(data: bytes, stream: bytes) -> bytes:
    """A gzip member around `stream`, the DEFLATE stream of `data`."""
    return GZIP_HEADER + stream + make_trailer(zlib.crc32(data), len(data))
