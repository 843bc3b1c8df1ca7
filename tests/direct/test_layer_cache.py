"""The cache of layers when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.core.errors import LocalFileError
from training_imgtool.direct.layers.layer_cache import LayerCache, LayerRecord, Record
from training_imgtool.registry.manifests import OCI_LAYER_GZIP, Descriptor


def test_a_cache_that_cannot_be_written_says_how_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(LocalFileError, match="cannot be written: Not a directory") as caught:
        LayerCache(tmp_path / "cache").keep_blob([b"x"])
    assert caught.value.hint == "IMGTOOL_CACHE chooses another folder, imgtool prune frees this one"


def test_a_manifest_carries_records_whose_layers_it_names_all(tmp_path: Path) -> None:
    one, two = (
        LayerRecord(name=name, blob=Descriptor(OCI_LAYER_GZIP, f"sha256:{name * 64}", 1), diff_id=f"sha256:{name * 64}")
        for name in "ab"
    )
    cache = LayerCache(tmp_path)
    cache.keep("1" * 64, Record((one, two)))
    cache.keep("2" * 64, Record((one,)))
    cache.keep("3" * 64, Record((), {"files": "of a base"}))
    assert cache.records_of([one.blob.digest]).keys() == {"2" * 64}
    assert cache.records_of([one.blob.digest, two.blob.digest]).keys() == {"1" * 64, "2" * 64}
