"""Seams guessed from a stream's end: where zlib finds them, or none."""

from __future__ import annotations

import random
import zlib

import pytest

from training_imgtool.direct.layers.block_inflater import BlockInflater, Seam
from training_imgtool.direct.layers.last_block import MOST, guess_seam


def _compress(data: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    engine = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
    return engine.compress(data) + engine.flush()


def _find(stream: bytes, size: int) -> Seam:
    with BlockInflater() as engine:
        engine.decompress(stream, size + 1)
        engine.decompress(b"", 1)
        return engine.seam


@pytest.mark.parametrize("seed", range(24))
def test_a_seam_is_guessed_where_zlib_finds_it(seed: int) -> None:
    made = random.Random(seed)
    letters = made.randbytes(made.choice([3, 12, 60, 200]))
    data = bytes(made.choices(letters, k=made.randrange(2_000, 400_000)))
    stream = _compress(data, made.randrange(1, 10))
    assert guess_seam(stream[-MOST:], len(stream)) == _find(stream, len(data))


def test_every_count_of_unused_bits_is_told() -> None:
    made = random.Random(1)
    seams = set()
    for size in range(500, 1000, 9):
        data = bytes(made.choices(b"abcdefgh \n", k=size))
        stream = _compress(data, 9)
        guess = guess_seam(stream, len(stream))
        assert guess == _find(stream, size)
        assert guess is not None
        seams.add(guess.unused)
    assert seams == set(range(8))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(_compress(random.Random(2).randbytes(90_000), 0), id="stored"),
        pytest.param(_compress(b"abc" * 1000, 9, zlib.Z_FIXED), id="fixed codes"),
        pytest.param(_compress(bytes(random.Random(2).choices(b"ab", k=90_000)), 9)[:-1], id="cut"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_block_without_codes_of_its_own_is_not_guessed(stream: bytes) -> None:
    assert guess_seam(stream[-MOST:], len(stream)) is None
