"""The cache of layers when it cannot be had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from training_imgtool.base.errors import LocalFileError, VerificationError
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord, Record, dump_record, read_record
from training_imgtool.oci.registry.manifests import OCI_CONFIG, OCI_LAYER_GZIP, Descriptor


def test_a_cache_that_cannot_be_written_says_how_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(LocalFileError, match="cannot be written: Not a directory") as caught:
        LayerCache(tmp_path / "cache").keep_blob([b"x"])
    assert caught.value.hint == "IMGTOOL_CACHE chooses another folder, imgtool prune frees this one"


A, B = (
    LayerRecord(name=name, blob=Descriptor(OCI_LAYER_GZIP, f"sha256:{name * 64}", 1), diff_id=f"sha256:{name * 64}")
    for name in "ab"
)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (dump_record("2" * 64, Record((A,))), "has another key"),
        (dump_record("1" * 64, Record((A,))).replace(b'"size": 1', b'"size": 2'), "damaged"),
        (dump_record("1" * 64, Record((A, B, A))), "names a layer twice"),
        (dump_record("1" * 64, Record((replace(A, blob=replace(A.blob, media_type=OCI_CONFIG)),))), "not a layer"),
        (dump_record("1" * 64, Record((replace(A, diff_id="md5:1"),))), "cannot be read"),
        (b"{}", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"\xff", "cannot be read"),
    ],
)
def test_what_is_no_record_of_a_layer(data: bytes, says: str) -> None:
    assert read_record(dump_record("1" * 64, Record((A, B), {"a": "b"})), "1" * 64) == Record((A, B), {"a": "b"})
    with pytest.raises(VerificationError, match=says):
        read_record(data, "1" * 64)


def test_a_manifest_carries_records_whose_layers_it_names_all(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path)
    cache.keep_wheels("1" * 64, Record((A, B)))
    cache.keep_wheels("2" * 64, Record((A,)))
    cache.keep("3" * 64, Record((A,), {"files": "of Debian packages"}))
    assert cache.records_of([A.blob.digest]).keys() == {"2" * 64}
    assert cache.records_of([A.blob.digest, B.blob.digest]).keys() == {"1" * 64, "2" * 64}
