"""Spliced layers as readers see them that know one gzip member, or jump into the middle of one as SOCI does (zran)."""

from __future__ import annotations

import hashlib
import importlib
import io
import random
import tarfile
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.direct.wheels import as_wheel, make_wheel
from training_imgtool.core.wheel_zip import open_wheel
from training_imgtool.direct.layers import splice
from training_imgtool.direct.layers.block_inflater import BlockInflater
from training_imgtool.direct.layers.splice import Carried, Item, Part, WrongGuessError
from training_imgtool.direct.layers.tarhead import Entry, Kind

_MADE = random.Random(5)
FILES = {
    "pack/__init__.py": b"",
    "pack/small.py": b"x = 1\n" * 9,
    "pack/words.txt": bytes(_MADE.choices(b"abcdefgh \n", k=3_000_000)),  # many blocks, several reads
    "pack/noise.so": _MADE.randbytes(2_500_000),  # blocks that zlib stores
    "pack/kept.bin": _MADE.randbytes(70_000),
    "pack/short.bin": b"kept as it is",
}
STORED = ("pack/kept.bin", "pack/short.bin")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """A wheel's members, with files of our own of every size between them."""
    path = make_wheel(tmp_path_factory.mktemp("splice"), "pack", FILES, stored=STORED)
    wheel = open_wheel(path, as_wheel(path).sha256)
    made: list[Item] = []
    for number, member in enumerate(wheel.members):
        made.append(
            Item(Entry(path=member.name, kind=Kind.FILE, mode=0o644, size=member.size), wheel=wheel, member=member)
        )
        own = _MADE.randbytes((0, 10, 2000, 70_000)[number % 4])
        made.append(Item(Entry(path=f"own/{number}", kind=Kind.FILE, mode=0o644, size=len(own)), data=own))
    return made


def _splice(items: list[Item], *, guess: bool = False) -> tuple[bytes, bytes, list[Part]]:
    """The layer, the tar that its diff ID is of, and its parts."""
    tar, parts = io.BytesIO(), list[Part]()
    layer = b"".join(splice.splice(items, 0, tar.write, parts.append, guess=guess))
    return layer, tar.getvalue(), parts


def test_one_member_holds_the_whole_tar(items: list[Item]) -> None:
    layer, tar, _ = _splice(items)
    assert tar == b"".join(splice.tar(items, 0))
    reader = zlib.decompressobj(31)  # checks CRC and size too
    assert hashlib.sha256(reader.decompress(layer)).digest() == hashlib.sha256(tar).digest()
    assert reader.eof
    assert not reader.unused_data
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        content = {name: _read(archive, name) for name in FILES}
    assert content == FILES


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_the_parts_join_to_the_same_bytes(items: list[Item]) -> None:
    layer, _, parts = _splice(items)
    assert b"".join(splice.join(parts)) == layer


def test_guessed_seams_give_the_same_bytes(items: list[Item], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _splice(items)
    monkeypatch.setattr(splice, "_GUESS_FROM", 1000)
    searched = Mock(side_effect=BlockInflater)
    monkeypatch.setattr(splice, "BlockInflater", searched)
    assert _splice(items, guess=True) == plain
    assert searched.call_count < sum(isinstance(part, Carried) and part.seam is not None for part in plain[2])


def test_a_wrong_guess_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "_GUESS_FROM", 1000)
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    ending = engine.compress(bytes(_MADE.choices(b"abcdefgh \n", k=9000))) + engine.flush()
    path = make_wheel(tmp_path, "trap", {"trap.bin": _MADE.randbytes(50_000) + ending})  # zlib stores it as it is
    wheel = open_wheel(path, as_wheel(path).sha256)
    member = wheel.members[0]
    entry = Entry(path="trap.bin", kind=Kind.FILE, mode=0o644, size=member.size)
    items = [Item(entry, wheel=wheel, member=member)]
    with pytest.raises(WrongGuessError):
        _splice(items, guess=True)
    layer, tar, _ = _splice(items)
    assert zlib.decompress(layer, 31) == tar


def test_nothing_is_compressed_again(items: list[Item]) -> None:
    layer, _, _ = _splice(items)
    carried = sum(item.member.compressed for item in items if item.member)
    own = sum(item.entry.size for item in items if item.member is None)
    assert len(layer) < carried + own + 200 * len(items)


def test_a_reader_that_jumps_into_the_member(items: list[Item]) -> None:
    indexed_gzip: Any = importlib.import_module("indexed_gzip")
    layer, tar, _ = _splice(items)
    with indexed_gzip.IndexedGzipFile(fileobj=io.BytesIO(layer), spacing=1 << 16) as reader:
        reader.build_full_index()
        assert len(list(reader.seek_points())) > 20
        for _ in range(300):
            start = _MADE.randrange(len(tar))
            reader.seek(start)
            assert reader.read(5000) == tar[start : start + 5000]
