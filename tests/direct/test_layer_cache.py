"""The cache of layers when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.core.errors import LocalFileError
from training_imgtool.direct.layers.layer_cache import LayerCache


def test_a_cache_that_cannot_be_written_says_how_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(LocalFileError, match="cannot be written: Not a directory") as caught:
        LayerCache(tmp_path / "cache").keep_blob([b"x"])
    assert caught.value.hint == "IMGTOOL_CACHE chooses another folder, imgtool prune frees this one"
