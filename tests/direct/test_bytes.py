"""Tar headers, the DEFLATE coder and gzip files made of pieces, read back by the standard library."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
import zlib

import pytest

from training_imgtool.direct.layers import codecs, deflate, tarhead
from training_imgtool.direct.layers.tarhead import Entry, Kind


def _samples() -> list[bytes]:
    made = random.Random(7)
    pieces = [b"", b"\0", bytes(3), bytes(258), bytes(1536), bytes(5000), bytes(range(256)), b"opt/venv/lib/python3.11"]
    return [b"".join(made.choices(pieces, k=made.randrange(6))) for _ in range(200)]


def _joined(pieces: list[tuple[bytes, bytes]]) -> bytes:
    """The gzip file of pieces: the content of each, and its stream."""
    ending = deflate.Ending()
    for data, _ in pieces:
        ending.add(zlib.crc32(data), len(data))
    return b"".join([deflate.GZIP_HEADER, *(stream for _, stream in pieces), ending.make()])


def _read_first_member(data: bytes) -> bytes:
    """What a reader gets that knows one member; all of the file must be it."""
    reader = zlib.decompressobj(31)
    content = reader.decompress(data)
    assert reader.eof
    assert not reader.unused_data
    return content


def test_pieces_of_every_origin_join_to_one_member() -> None:
    samples = _samples()
    coders = (deflate.encode_fixed, deflate.encode_stored, codecs.deflate)
    made = random.Random(8)
    pieces = [(data, made.choice(coders)(data)) for data in samples]
    assert _read_first_member(_joined(pieces)) == b"".join(samples)


@pytest.mark.parametrize("count", [*range(1, 600), 1024, 1535, 1536, 1537])
def test_every_run_of_zeros(count: int) -> None:
    assert _read_first_member(_joined([(bytes(count), deflate.encode_fixed(bytes(count)))])) == bytes(count)


def test_stored_streams_over_64_kib() -> None:
    data = random.Random(1).randbytes(200_000)
    assert _read_first_member(_joined([(data, deflate.encode_stored(data))])) == data


def test_a_header_has_the_same_bytes_in_every_version() -> None:
    """They are part of the digests of layers that repositories hold."""
    made = b"".join(deflate.encode_fixed(bytes(count) + bytes(range(256))) for count in range(1600))
    assert hashlib.sha256(made).hexdigest() == "1223385c1b3db6b841feb7602955d6d659a2291ea524086f54f29845e4dad2f5"


def test_a_header_is_small() -> None:
    header = bytes(511) + tarhead.make_header(Entry(path="opt/venv/lib/x.py", kind=Kind.FILE, mode=0o644, size=9), 0)
    assert len(deflate.encode_fixed(header)) < 105  # with the block that closes the last byte


LONG = "site-packages/" + "a" * 90 + "/" + "b" * 90


@pytest.mark.parametrize(
    "entry",
    [
        Entry(path="opt/venv/bin/python", kind=Kind.LINK, mode=0o777, target="/usr/local/bin/python3.11"),
        Entry(path="app", kind=Kind.FOLDER, mode=0o755),
        Entry(path="app/a.py", kind=Kind.FILE, mode=0o644, size=12),
        Entry(path="n" * 100, kind=Kind.FILE, mode=0o755, size=1),
        Entry(path=LONG, kind=Kind.FILE, mode=0o644, size=3),
        Entry(path="d" * 155 + "/" + "f" * 100, kind=Kind.FILE, mode=0o644, size=3),
        Entry(path="d" * 156 + "/" + "f" * 100, kind=Kind.FILE, mode=0o644, size=3),
        Entry(path="f" * 101, kind=Kind.FILE, mode=0o644, size=3),
        Entry(path="g" * 99, kind=Kind.FOLDER, mode=0o700),
        Entry(path="g" * 100, kind=Kind.FOLDER, mode=0o700),
        Entry(path="h" * 300 + "/" + "i" * 300, kind=Kind.FOLDER, mode=0o755),
        Entry(path="käse/größe.py", kind=Kind.FILE, mode=0o644, size=1),
        Entry(path="link", kind=Kind.LINK, mode=0o777, target="t" * 101),
        Entry(path="link", kind=Kind.LINK, mode=0o777, target="größe"),
        Entry(path="big", kind=Kind.FILE, mode=0o644, size=8**11 + 1),
        Entry(path="owned", kind=Kind.FILE, mode=0o4755, size=1, uid=1000, gid=3_000_000),
        Entry(path="bad-\udcff-name", kind=Kind.FILE, mode=0o644, size=1),
    ],
)
def test_headers_read_back(entry: Entry) -> None:
    header = tarhead.make_header(entry, 315_619_200)
    assert len(header) % 512 == 0
    with tarfile.open(fileobj=io.BytesIO(header + bytes(1024)), errors="surrogateescape") as archive:
        found = archive.next()
    assert found is not None
    assert found.name == entry.path
    assert (found.mode, found.uid, found.gid, found.mtime) == (entry.mode, entry.uid, entry.gid, 315_619_200)
    assert found.size == entry.size
    assert found.linkname == entry.target
    assert found.type.decode() == entry.kind.value


def test_pax_only_when_needed() -> None:
    assert len(tarhead.make_header(Entry(path=LONG, kind=Kind.FILE, mode=0o644, size=3), 0)) == 512
    assert len(tarhead.make_header(Entry(path="é", kind=Kind.FILE, mode=0o644, size=3), 0)) == 1536
