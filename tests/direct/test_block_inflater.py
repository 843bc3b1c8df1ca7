"""Where streams are opened: every level and strategy of zlib, read in pieces of every size."""

from __future__ import annotations

import random
import zlib

import pytest

from training_imgtool.direct.layers.block_inflater import BlockInflater, combine_crc32
from training_imgtool.direct.layers.deflate import close_byte

_LAST = b"\x03\0"


def _inflate(stream: bytes, piece: int, limit: int) -> tuple[bytes, BlockInflater]:
    out = []
    with BlockInflater() as engine:
        for start in range(0, len(stream), piece):
            left = stream[start : start + piece]
            while left and not engine.eof:
                out.append(engine.decompress(left, limit))
                left = engine.unconsumed_tail
        while not engine.eof and (rest := engine.decompress(b"", limit)):
            out.append(rest)
    return b"".join(out), engine


def _compress(data: bytes, level: int, strategy: int) -> bytes:
    engine = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
    return engine.compress(data) + engine.flush()


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=pytest.mark.long) for n in range(20, 60))])
def test_an_opened_stream_can_be_followed(seed: int) -> None:
    made = random.Random(seed)
    size = made.randrange(1, 60_000)
    data = bytes(made.choices(b"abcdefgh \n", k=size)) if seed % 3 else made.randbytes(size)
    stream = _compress(data, made.randrange(10), made.randrange(5))
    content, engine = _inflate(stream, made.choice([1, 7, 1000, len(stream)]), made.choice([1, 100, 1 << 16]))
    assert content == data
    opened, seam = bytearray(stream), engine.seam
    opened[seam.offset] &= ~(1 << seam.bit)
    opened[-1] &= 0xFF >> seam.unused
    opened += close_byte(seam.unused)
    reader = zlib.decompressobj(-15)
    assert reader.decompress(bytes(opened)) == data
    assert not reader.eof, "nothing marks the last block any more"
    assert zlib.decompress(bytes(opened) * 2 + _LAST, -15) == data * 2


def test_bits_behind_the_stream_are_not_part_of_it() -> None:
    streams = [_compress(random.Random(seed).randbytes(seed + 1), 9, zlib.Z_FIXED) for seed in range(64)]
    seen = set()
    for stream in streams:
        content, engine = _inflate(stream, 1, 100)
        seen.add(unused := engine.seam.unused)
        dirty = stream[:-1] + bytes([stream[-1] | (0xFF << (8 - unused) & 0xFF)])
        assert _inflate(dirty, 1, 100)[0] == content
        assert _inflate(dirty, 1, 100)[1].seam == engine.seam
    assert seen == set(range(8))


@pytest.mark.parametrize("tail", [b"x", bytes(100)])
def test_what_follows_the_stream_is_no_part_of_it(tail: bytes) -> None:
    stream = _compress(b"content" * 100, 9, 0) + tail
    reader = zlib.decompressobj(-15)
    with BlockInflater() as engine:
        assert engine.decompress(stream, 1 << 16) == reader.decompress(stream)
        assert (engine.eof, engine.unused_data, engine.unconsumed_tail) == (True, reader.unused_data, b"")
    with BlockInflater() as engine:
        assert engine.decompress(stream, 10) == (b"content" * 2)[:10]
        assert (engine.eof, engine.unused_data) == (False, b"")
        assert stream.endswith(engine.unconsumed_tail)
        assert engine.unconsumed_tail


def test_a_damaged_stream() -> None:
    with pytest.raises(zlib.error):
        _inflate(b"\x07" + bytes(10), 100, 100)


def test_a_cut_stream_has_no_seam() -> None:
    content, engine = _inflate(_compress(bytes(1000), 9, 0)[:-3], 100, 10_000)
    assert len(content) <= 1000
    with pytest.raises(ValueError, match="has not ended"):
        _ = engine.seam


def test_sums_of_pieces_combine() -> None:
    first, second = random.Random(1).randbytes(100), random.Random(2).randbytes(70_000)
    assert combine_crc32(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
    assert combine_crc32(zlib.crc32(first), 0, 0) == zlib.crc32(first)
