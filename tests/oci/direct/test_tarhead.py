"""Tar headers, read back by the standard library."""

from __future__ import annotations

import io
import tarfile

import pytest

from training_imgtool.oci.layers import tarhead
from training_imgtool.oci.layers.tarhead import Entry, Kind

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
