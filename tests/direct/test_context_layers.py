"""Layers of files from the context: small ones by zlib, large ones in pieces, both the same each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from training_imgtool.core.threads import SingleFlight
from training_imgtool.direct.layers import blobs, context_layers
from training_imgtool.direct.layers.context_layers import make_context_layer
from training_imgtool.direct.layers.layer_cache import LayerCache
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.layers.splice import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind

MTIME = 315532800
LARGE = (b"weights " * 1000 + bytes(5000) + os.urandom(3000)) * 400  # 6.4 MB


def _layer(cache: Path, contents: dict[str, bytes]) -> LayerSource:
    items = tuple(
        Item(Entry(path=path, kind=Kind.FILE, mode=0o644, size=len(data)), blocks=lambda data=data: iter((data,)))  # type: ignore[misc]
        for path, data in contents.items()
    )
    hashes = tuple(hashlib.sha256(data).hexdigest() for data in contents.values())
    parts = tuple(zip(items, hashes, strict=True))
    return make_context_layer(parts, "COPY", cache=LayerCache(cache), mtime=MTIME, once=SingleFlight())


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


def test_a_large_layer_is_the_same_on_a_machine_with_other_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        digests.add(_layer(tmp_path / str(cores), {"data.bin": LARGE}).descriptor.digest)
    assert len(digests) == 1


def test_which_codec_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code keeps the digest that every machine with this zlib gives."""
    made: list[int] = []
    compress = blobs.Pieces.compress

    def noted(codec: blobs.Pieces, blocks: Iterable[bytes]) -> Iterator[bytes]:
        made.append(1)
        return compress(codec, blocks)

    monkeypatch.setattr(blobs.Pieces, "compress", noted)
    _layer(tmp_path, {"a": LARGE[: context_layers._LARGE]})
    assert not made
    _layer(tmp_path, {"a": LARGE[: context_layers._LARGE + 1]})
    assert made
