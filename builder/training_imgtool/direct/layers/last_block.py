"""Guesses from a DEFLATE stream's end where its last block begins, so that the fastest inflater can read the stream.

A block with codes of its own has a header that few other bits resemble (RFC 1951, 3.2.7): its type, two counts, and the
lengths of a code that must be complete. All positions are judged at once: in an integer that holds the stream, bit N
belongs to position N, and shifting it by K brings the bit that is K further on to each position. zlib tries the few
positions that are left. A block of another kind, or a longer one than compressors make, is not found.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from training_imgtool.direct.layers.block_inflater import Seam

MOST = 1 << 16
"""Bytes before a stream's end at which zlib's last block begins, nearly always."""
_WINDOW = 1 << 13  # bytes that are judged at once
_CODES = 17  # bits of a header before the first length
_LENGTHS, _FIRST = 19, 4  # lengths of 3 bits each; how many every header has
_HEADER = _CODES + 3 * _LENGTHS
_LAST_FIXED, _LAST_FIXED_BITS = 0b11, 10  # a last block with fixed codes and no content
_ANYTHING = bytes(1 << 15)  # stands for what the block may copy of earlier content


def guess_seam(end: bytes, size: int) -> Seam | None:
    """Guesses the seam of a stream of `size` bytes that ends with `end`; None where nothing looks like a last block.

    Only who inflates the opened stream, and compares the content's CRC-32, knows that the guess is right.
    """
    stream = int.from_bytes(end, "little")
    for stop in range(len(end), 0, -_WINDOW):
        start = max(0, stop - _WINDOW)
        for position in _list_headers(stream >> 8 * start, 8 * (stop - start)):
            at = 8 * start + position
            unused = _count_unused(stream >> at, 8 * len(end) - at)
            if unused is not None:
                offset, bit = divmod(8 * (size - len(end)) + at, 8)
                return Seam(offset, bit, unused)
    return None


def _list_headers(stream: int, count: int) -> Iterator[int]:
    """Yields those of the first `count` positions, from behind, at which a last block's header may begin."""
    ahead = [(stream & (1 << count + _HEADER) - 1) >> step for step in range(_HEADER)]
    found = (1 << count) - 1 & ahead[0] & ~ahead[1] & ahead[2]  # the mark, and type 2 with the low bit first
    for low in (3, 8):  # counts of 30 and 31 codes are invalid
        found &= ~(ahead[low + 1] & ahead[low + 2] & ahead[low + 3] & ahead[low + 4])
    sums = [0] * 8  # of 2 ** (7 - length), modulo 256, in binary: one integer per digit
    for number in range(_LENGTHS):
        there = found & _has_lengths(ahead, number + 1 - _FIRST)
        for length in range(1, 8):
            carry = there
            for digit in range(3):
                bits = ahead[_CODES + 3 * number + digit]
                carry &= bits if length >> digit & 1 else ~bits
            for digit in range(7 - length, 8):
                sums[digit], carry = sums[digit] ^ carry, sums[digit] & carry
    found &= sums[7]  # a complete code: 128
    for digit in range(7):
        found &= ~sums[digit]
    while found:
        position = found.bit_length() - 1
        yield position
        found ^= 1 << position


def _has_lengths(ahead: list[int], more: int) -> int:
    """Returns the positions whose header has at least `more` lengths beyond the first four, which every header has."""
    if more <= 0:
        return -1
    equal, above = -1, 0
    for digit in reversed(range(4)):
        bits = ahead[_CODES - 4 + digit]
        if more >> digit & 1:
            equal &= bits
        else:
            above |= equal & bits
            equal &= ~bits
    return equal | above


def _count_unused(block: int, bits: int) -> int | None:
    """Counts the bits after a last block that ends in the last byte of `bits` bits; None if it does not end there."""
    rest = _inflate(block, bits)
    if rest is None or rest > 1:
        return None
    fitting = [
        unused
        for unused in range(8)
        for left in (bits - unused,)
        if _inflate(block & (1 << left) - 2 | _LAST_FIXED << left, left + _LAST_FIXED_BITS) == 0
    ]
    return fitting[0] if len(fitting) == 1 else None


def _inflate(blocks: int, bits: int) -> int | None:
    """Inflates blocks; returns how many bytes follow the last one, None if they are invalid or end too early."""
    engine = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_ANYTHING)
    try:
        engine.decompress(blocks.to_bytes((bits + 7) // 8, "little"))
    except zlib.error:
        return None
    return len(engine.unused_data) if engine.eof else None
