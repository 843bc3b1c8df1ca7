"""Layers of files from the context."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.context_layers import make_context_layer
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry, Kind

MTIME = 315532800
LARGE = (b"weights " * 1000 + bytes(5000) + os.urandom(3000)) * 400  # 6.4 MB


def _layer(cache: Path, contents: dict[str, bytes]) -> LayerSource:
    items = tuple(
        Item(Entry(path=path, kind=Kind.FILE, mode=0o644, size=len(data)), blocks=lambda data=data: iter((data,)))  # type: ignore[misc]
        for path, data in contents.items()
    )
    hashes = tuple(hashlib.sha256(data).hexdigest() for data in contents.values())
    parts = tuple(zip(items, hashes, strict=True))
    return make_context_layer(
        parts, "COPY", cache=LayerCache(cache), compression=Compression.GZIP, mtime=MTIME, once=SingleFlight()
    )


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["small", "large"])
def test_what_comes_out_is_what_went_in(tmp_path: Path, size: int) -> None:
    contents = {"app/task.py": b"print()\n", "app/data.bin": LARGE[:size]}
    layer = _layer(tmp_path, contents)
    data = b"".join(layer.open())
    assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (layer.descriptor.digest, layer.descriptor.size)
    plain = gzip.decompress(data)
    assert f"sha256:{hashlib.sha256(plain).hexdigest()}" == layer.diff_id
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert {entry.name: tar.extractfile(entry).read() for entry in tar} == contents  # type: ignore[union-attr]
    assert b"".join(layer.open()) == data  # a second try of the upload
    assert len(data) < len(plain)
