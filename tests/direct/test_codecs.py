"""What compresses the pieces of a layer: ISA-L, and zlib where it cannot be had."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator

import pytest

from training_imgtool.core import inflate
from training_imgtool.direct.layers import codecs

DATA = b"".join(random.Random(3).choices([b"import os\n", b"\0" * 40, bytes(range(256)), b"x"], k=4000))


@pytest.fixture(params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    inflate.find_isal.cache_clear()
    yield request.param
    inflate.find_isal.cache_clear()


def test_a_piece_inflates_to_what_went_in(library: str) -> None:
    assert codecs.name_piece_codec().startswith(library)
    for data in (DATA, b"", b"x"):
        assert zlib.decompressobj(-zlib.MAX_WBITS).decompress(codecs.deflate(data)) == data
    assert len(codecs.deflate(DATA)) < len(DATA) / 4


def test_a_piece_is_the_same_every_time(library: str) -> None:
    assert library
    assert len({codecs.deflate(DATA) for _ in range(5)}) == 1


def test_crc32(library: str) -> None:
    assert library
    assert inflate.crc32(DATA, 0) == zlib.crc32(DATA)
