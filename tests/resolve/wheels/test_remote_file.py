"""A wheel on an index is read in parts: its end, then only what zipfile asks for."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Generator

import pytest

from training_imgtool.resolve.wheels.index.remote_file import open_remote

METADATA = "x-1.dist-info/METADATA"


class Server:
    """Has a file, and notes from where it was asked for it, and how many bytes went."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offsets, self.sent = data, list[int](), 0

    def read(self, offset: int) -> Generator[bytes, None, None]:
        self.offsets.append(offset)
        for at in range(offset, len(self.data), 1 << 16):
            self.sent += len(self.data[at : at + (1 << 16)])
            yield self.data[at : at + (1 << 16)]

    def metadata(self) -> bytes:
        with zipfile.ZipFile(open_remote(len(self.data), self.read)) as archive:
            return archive.read(METADATA)


def wheel(*, first: bool, members: int = 1, padding: int = 3 << 20) -> Server:
    """METADATA is the first member, as in TensorFlow's wheels, or the last."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        if first:
            archive.writestr(METADATA, "Name: x\n")
        archive.writestr("padding", bytes(padding))
        for number in range(members):
            archive.writestr(hashlib.sha256(b"%d" % number).hexdigest(), "")
        if not first:
            archive.writestr(METADATA, "Name: x\n")
    return Server(stream.getvalue())


def test_metadata_at_the_end_is_one_request() -> None:
    server = wheel(first=False)
    assert server.metadata() == b"Name: x\n"
    assert server.offsets == [len(server.data) - (128 << 10)]


def test_metadata_at_the_beginning_is_one_more() -> None:
    server = wheel(first=True)
    assert server.metadata() == b"Name: x\n"
    assert server.offsets == [len(server.data) - (128 << 10), 0]
    assert server.sent < 300_000


def test_a_directory_that_is_longer_than_the_end_is_one_more_and_so_is_what_lies_before_it() -> None:
    server = wheel(first=False, members=5000)
    assert server.metadata() == b"Name: x\n"
    assert len(server.offsets) == 3
    assert server.sent < 1_000_000


def test_a_small_file() -> None:
    server = wheel(first=True, padding=10)
    assert server.metadata() == b"Name: x\n"
    assert server.offsets == [0]


def test_parts_are_short_and_inside_the_file() -> None:
    server = wheel(first=True, padding=9 << 20)
    file = open_remote(len(server.data), server.read)
    with pytest.raises(zipfile.BadZipFile, match="a part of more than"):
        file.read(9 << 20)
    with pytest.raises(OSError, match="before the start"):
        file.seek(-1)
    assert file.seek(0, io.SEEK_END) == len(server.data)
    assert file.read(1) == b""
