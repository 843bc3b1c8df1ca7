"""What compresses layers: the same bytes each time, and one member that readers can jump into."""

from __future__ import annotations

import hashlib
import importlib
import io
import platform
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from training_imgtool.base import inflate
from training_imgtool.oci.layers.codecs import Compression, choose_codec

MADE = random.Random(3)
DATA = bytes(MADE.choices(b"abcdefgh \n", k=2_000_000)) + bytes(5000) + MADE.randbytes(100_000)


@pytest.fixture(params=["isal", "zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    inflate.load_fast_library.cache_clear()
    yield request.param
    inflate.load_fast_library.cache_clear()


def _compress(data: bytes, block: int = 70_000) -> bytes:
    return b"".join(choose_codec(Compression.GZIP).compress(data[at : at + block] for at in range(0, len(data), block)))


def test_gzip_is_one_member_and_the_same_each_time(library: str) -> None:
    assert library
    for data in (DATA, b"", b"x"):
        reader = zlib.decompressobj(31)
        assert reader.decompress(_compress(data)) == data
        assert reader.eof
        assert not reader.unused_data
        assert _compress(data) == _compress(data) == _compress(data, 1000) == _compress(data, 3 << 20)
    assert len(_compress(DATA)) < 0.6 * len(DATA)


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="known of x86-64 alone")
def test_every_release_of_isal_and_every_processor_gives_these_bytes() -> None:
    """Seen with isal 1.7.0 to 1.9.1; if a release gives others, machines that compress anew push other digests."""
    assert (
        hashlib.sha256(_compress(DATA)).hexdigest()
        == "7c6bbbebde05f24d2761b57f11ed9cea3ec851c920c942124d87784d8dc53a5f"
    )


def test_crc32(library: str) -> None:
    assert library
    assert inflate.crc32(DATA, 0) == zlib.crc32(DATA)


def test_a_reader_that_jumps_into_the_member() -> None:
    """As SOCI does."""
    indexed_gzip: Any = importlib.import_module("indexed_gzip")
    with indexed_gzip.IndexedGzipFile(fileobj=io.BytesIO(_compress(DATA)), spacing=1 << 16) as reader:
        reader.build_full_index()
        assert len(list(reader.seek_points())) > 5
        for _ in range(100):
            start = MADE.randrange(len(DATA))
            reader.seek(start)
            assert reader.read(5000) == DATA[start : start + 5000]
