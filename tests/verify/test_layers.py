"""Layers as they come: what is told of them, whiteouts, and damaged archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.registry.support import Events
from tests.registry.support import layer as blob
from tests.verify.images import Layer, Link, tar
from training_imgtool.core.progress import Event, Planned, Step
from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.verify.facts import Layer as LayerFacts
from training_imgtool.verify.facts import Listing
from training_imgtool.verify.inspect_registry import LARGEST_BASE_LAYER, LayerReader, Stored
from training_imgtool.verify.layers import overlay, read_layer

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries

SITE = "opt/venv/lib/python3.11/site-packages"


def _blocks(data: bytes, size: int = 700) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _read(data: bytes) -> Listing:
    return read_layer(_blocks(data), hashed=True, most=1 << 20)


def _listing(layer: Layer) -> dict[str, str]:
    return {str(told["path"]): str(told["kind"]) for told in _read(tar(layer)).items}


def test_what_is_told_of_a_layer() -> None:
    found = _listing(
        {
            "opt/venv/bin/python": Link("/usr/local/bin/python3.11"),
            f"{SITE}/numpy-1.26.4.dist-info/METADATA": b"Name: numpy\nVersion: 1.26.4\n\nLong.\n",
            "app/trainer/task.py": b"import numpy\n",
            "app/notes": b"nothing of interest",
            "app/key.json": b'{"type": "service_account"}',
            "usr/share/common": b"x" * 100,
        }
    )
    assert found == {
        "opt/venv/bin/python": "python",
        f"{SITE}/numpy-1.26.4.dist-info/METADATA": "metadata",
        "app/trainer/task.py": "source",
        "app/key.json": "suspect",
    }


@pytest.mark.parametrize(("shipped", "changed", "recorded"), [(b"CERT", b"CERT", True), (b"CERT", b"OTHER", False)])
def test_a_suspect_of_a_package_is_known_by_its_bytes(shipped: bytes, changed: bytes, *, recorded: bool) -> None:
    digest = urlsafe_b64encode(hashlib.sha256(shipped).digest()).decode().rstrip("=")
    record = f"certifi/__init__.py,sha256=x,0\r\ncertifi/cacert.pem,sha256={digest},4\r\n".encode()
    layer: Layer = {f"{SITE}/certifi/cacert.pem": changed, f"{SITE}/certifi-1.dist-info/RECORD": record}
    items = {told["kind"]: told for told in _read(tar(layer)).items}
    assert items["suspect"]["recorded"] is recorded
    assert items["record"]["names"] == ["certifi"]


def _read_stored(*, own: bool = True, of_base: bool = False, size: int = 1000) -> list[Event]:
    """Reads an image of one layer for two roles; returns what was told."""
    data = gzip.compress(tar({"app/a.py": b"1\n"}))
    descriptor = replace(blob(data), size=size)
    digest = descriptor.digest
    stored = Stored(
        digest=parse_repository("registry.example.com/team").digest(digest),
        config={},
        layers=(LayerFacts(digest=digest, size=size, own=own, history="COPY"),),
        descriptors=(descriptor,),
        of_base=frozenset({digest} if of_base else ()),
    )
    asked = SimpleNamespace(at=lambda _: SimpleNamespace(blob=lambda *_, **__: _blocks(data)))
    events = Events()
    reader = LayerReader(cast("Registries", asked), events)
    found = [reader.read(stored, subject=subject) for subject in ("master", "worker")]
    assert found[0] == found[1]
    assert all(listing.diff_id for listing in found[0].values())
    assert bool(found[0]) == bool(events.all)
    return events.all


def test_a_layer_is_read_once_for_all_roles() -> None:
    assert _read_stored() == [Step("master", "reading 1 layer"), Planned("master", 1000)]


@pytest.mark.parametrize(
    ("own", "of_base", "size", "is_read"),
    [
        (True, False, LARGEST_BASE_LAYER + 1, True),
        (False, True, LARGEST_BASE_LAYER, True),
        (False, True, LARGEST_BASE_LAYER + 1, False),
        (False, False, LARGEST_BASE_LAYER + 1, True),  # it says that it is of the base, and the base lacks it
    ],
)
def test_large_layers_of_the_base_are_left_out(*, own: bool, of_base: bool, size: int, is_read: bool) -> None:
    assert bool(_read_stored(own=own, of_base=of_base, size=size)) == is_read


def test_layers_are_laid_over_each_other() -> None:
    cudnn, cublas = "usr/lib/libcudnn.so.8", "usr/lib/libcublas.so.12"
    tree = overlay(
        {
            0: _read(tar({cudnn: b"1", cublas: b"1", "app/a.py": b"", "app/b/c.py": b""})),
            1: _read(tar({cudnn: None, "app/b": None, "app/a.py": b"new"})),
        },
        2,
    )
    assert sorted(tree.items) == ["app/a.py", cublas]
    assert tree.items["app/a.py"]["text"] == "new"
    assert tree.items["app/a.py"]["layer"] == 1
    assert tree.complete


def test_an_opaque_folder_hides_what_is_below_and_not_its_own() -> None:
    opaque = tar({"app/.wh..wh..opq": b"", "app/new.py": b""})
    tree = overlay({0: _read(tar({"app/old.py": b""})), 2: _read(opaque)}, 3)
    assert sorted(tree.items) == ["app/new.py"]
    assert not tree.complete


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_of_several_members(members: int) -> None:
    data = tar({"app/a.py": b"x" * 5000})
    size = -(-len(data) // members)
    packed = b"".join(gzip.compress(data[start : start + size]) for start in range(0, len(data), size))
    assert b"".join(decompress(_blocks(packed))) == data


def test_zstd_and_plain_archives() -> None:
    import zstandard

    data = tar({"app/a.py": b"x" * 5000})
    packed = zstandard.ZstdCompressor().compress(data)
    assert b"".join(decompress(_blocks(packed))) == data
    assert b"".join(decompress(_blocks(data))) == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"no gzip at all, but some text", "ends in the middle of a header"),
        (gzip.compress(b"x")[:10] + b"\xff" * 50, "is not gzip"),
        (gzip.compress(tar({"a": b"x" * 9000}))[:-30], "ends in the middle"),
        (gzip.compress(b"no archive" * 200), "is not a tar archive"),
        (gzip.compress(tar({"a": b"x" * 9000})[:3000]), "ends in the middle of a file"),
    ],
)
def test_damaged_layers_have_a_fault_and_no_diff_id(data: bytes, says: str) -> None:
    listing = read_layer(decompress(_blocks(data)), hashed=True, most=1 << 20)
    assert listing.diff_id is None
    assert says in listing.faults[-1]


def test_a_layer_is_read_up_to_its_limit() -> None:
    listing = _read(tar({"app/zeros": bytes(2 << 20)}))
    assert listing.faults == ("it inflates to more than 1 MB, so the rest is not read",)
    assert listing.diff_id is None


def test_an_extended_header_has_a_limit() -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    assert "an extended header of 1099511627776 bytes" in _read(header.tobuf(tarfile.GNU_FORMAT)).faults[-1]


def _archive(*members: tuple[str, bytes, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ([("a/b", tarfile.REGTYPE, ""), ("./a//b", tarfile.REGTYPE, "")], ("/a/b is in it twice",)),
        ([("a", tarfile.REGTYPE, ""), ("b", tarfile.LNKTYPE, "a")], ()),
        (
            [("b", tarfile.LNKTYPE, "../etc/passwd")],
            ("/b is a hard link to ../etc/passwd, which the layer does not have before it",),
        ),
    ],
)
def test_what_engines_refuse_is_a_fault(members: list[tuple[str, bytes, str]], faults: tuple[str, ...]) -> None:
    assert _read(_archive(*members)).faults == faults


@pytest.mark.parametrize("above", [{"app": Link("/elsewhere")}, {"app": b"a file"}, {"app/b": Link("x")}])
def test_an_entry_that_is_no_folder_replaces_the_folder_below(above: Layer) -> None:
    tree = overlay({0: _read(tar({"app/b/task.py": b"", "application/task.py": b""})), 1: _read(tar(above))}, 2)
    assert "app/b/task.py" not in tree.items
    assert "app/b/task.py" not in tree.nodes
    assert "application/task.py" in tree.nodes


def test_sizes_are_those_of_files_right_in_each_folder() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, size in (("./opt/a", 10), ("opt/b", 5), ("opt/sub/c", 7), ("top", 1)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
        hard = tarfile.TarInfo("opt/hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "opt/a"
        archive.addfile(hard)
    listing = _read(buffer.getvalue())
    assert listing.folders == {"opt": 15, "opt/sub": 7, "": 1}
