"""Layers as they come: what is told of them, whiteouts, and damaged archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator

import pytest

from tests.verify.images import Layer, Link, tar
from training_imgtool.core.errors import VerificationError
from training_imgtool.direct.layers.codecs import unpacked
from training_imgtool.verify.layers import overlaid, read_layer

SITE = "opt/venv/lib/python3.11/site-packages"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


def _blocks(data: bytes, size: int = 700) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _listing(layer: Layer) -> dict[str, str]:
    return {str(told["path"]): str(told["kind"]) for told in read_layer(_blocks(tar(layer))).items}


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
    items = {told["kind"]: told for told in read_layer(_blocks(tar(layer))).items}
    assert items["suspect"]["recorded"] is recorded
    assert items["record"]["names"] == ["certifi"]
    assert "text" not in items["record"]


def test_layers_are_laid_over_each_other() -> None:
    cudnn, cublas = "usr/lib/libcudnn.so.8", "usr/lib/libcublas.so.12"
    tree = overlaid(
        {
            0: read_layer(_blocks(tar({cudnn: b"1", cublas: b"1", "app/a.py": b"", "app/b/c.py": b""}))),
            1: read_layer(_blocks(tar({cudnn: None, "app/b": None, "app/a.py": b"new"}))),
        },
        2,
    )
    assert sorted(tree.items) == ["app/a.py", cublas]
    assert tree.items["app/a.py"]["text"] == "new"
    assert tree.items["app/a.py"]["layer"] == 1
    assert tree.complete


def test_an_opaque_folder_hides_what_is_below_and_not_its_own() -> None:
    opaque = tar({"app/.wh..wh..opq": b"", "app/new.py": b""})
    tree = overlaid({0: read_layer(_blocks(tar({"app/old.py": b""}))), 2: read_layer(_blocks(opaque))}, 3)
    assert sorted(tree.items) == ["app/new.py"]
    assert not tree.complete


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_of_several_members(members: int) -> None:
    data = tar({"app/a.py": b"x" * 5000})
    size = -(-len(data) // members)
    packed = b"".join(gzip.compress(data[start : start + size]) for start in range(0, len(data), size))
    assert b"".join(unpacked(_blocks(packed), GZIP)) == data


def test_zstd_and_plain_archives() -> None:
    import zstandard

    data = tar({"app/a.py": b"x" * 5000})
    packed = zstandard.ZstdCompressor().compress(data)
    assert b"".join(unpacked(_blocks(packed), GZIP.replace("gzip", "zstd"))) == data
    assert b"".join(unpacked(_blocks(data), GZIP.removesuffix("+gzip"))) == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"no gzip at all, but some text", "is not gzip"),
        (gzip.compress(tar({"a": b"x" * 9000}))[:-30], "ends in the middle"),
        (gzip.compress(b"no archive" * 200), "is not a tar archive"),
        (gzip.compress(tar({"a": b"x" * 9000})[:3000]), "is not a tar archive"),
    ],
)
def test_damaged_layers_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(VerificationError, match=says):
        read_layer(unpacked(_blocks(data), GZIP))


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
    listing = read_layer(_blocks(buffer.getvalue()))
    assert listing.folders == {"opt": 15, "opt/sub": 7, "": 1}
