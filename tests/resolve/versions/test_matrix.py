"""The matrix against the facts it was written from, where those are at hand, and its own consistency."""

from __future__ import annotations

import subprocess
import sys

import pytest

from training_imgtool.base.errors import FieldError, UsageError
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.resolve.frameworks.tensorflow.table import as_data, as_text
from training_imgtool.resolve.versions.matrix import (
    Matrix,
    load_matrix,
    python_minors,
    version_key,
)
from training_imgtool.resolve.versions.matrix_file import matrix_version


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix()


def test_rows_agree_with_each_other(matrix: Matrix) -> None:
    for minor in matrix.minors.values():
        assert minor.recommended in minor.releases
        assert set(minor.source.split()) <= set(matrix.sources)
        assert set(minor.and_cuda_broken) <= {*minor.releases, "python 3.11"}
        for base in minor.bases:
            image = matrix.cuda_images[base.tag]
            assert image.status != "gone"
            assert image.cudnn or base.apt
            assert image.os in matrix.systems


def test_version_is_read_without_parsing(matrix: Matrix) -> None:
    assert matrix_version() == matrix.version
    code = "import sys\nfrom training_imgtool.resolve.versions.matrix_file import matrix_version\n"
    code += "matrix_version()\nassert 'yaml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions_that_do_not_exist_name_the_nearest(matrix: Matrix) -> None:
    newest = [*matrix.minors.values()][-1].recommended
    for version, expected in [("2.16.0", "2.16.2"), ("1.15.1", "1.15.5"), ("2.0.5", "2.0.4"), ("9.9.0", newest)]:
        with pytest.raises(FieldError, match=f"has no TensorFlow {version}") as caught:
            matrix.release(version, TENSORFLOW)
        assert caught.value.field == "tensorflow"
        assert expected in (caught.value.hint or "")


def test_python_minors_and_versions() -> None:
    assert python_minors("2.7 3.9-3.11") == ("2.7", "3.9", "3.10", "3.11")
    assert python_minors("") == ()
    assert version_key("3.10") > version_key("3.9")


def test_table_has_a_line_per_minor(matrix: Matrix) -> None:
    lines = as_text(matrix).splitlines()
    assert len(lines) == 1 + len(matrix.minors) + 2
    assert lines[0].startswith("TENSORFLOW")
    assert any(line.startswith("2.15.1") and "12.2.2-cudnn8-runtime-ubuntu22.04" in line for line in lines)


def test_details_of_one_release_and_one_minor(matrix: Matrix) -> None:
    text = as_text(matrix, "2.15.0")
    assert "tensorflow on nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04" in text
    assert "TF#62498" in text
    assert "cuda_from: wheels" not in text
    assert "tensorflow on python:3.11-slim-bookworm with cuda_from: wheels" in as_text(matrix, "2.15.1")
    assert as_text(matrix, "2.15").count("TensorFlow 2.15.") == 3
    with pytest.raises(UsageError, match=r"has no TensorFlow 2\.16\.0") as caught:
        as_text(matrix, "2.16.0")
    assert caught.value.exit_code == 2


def test_data_has_a_row_per_release(matrix: Matrix) -> None:
    data = as_data(matrix)
    assert len(data["releases"]) == sum(len(minor.releases) for minor in matrix.minors.values())
    (row,) = as_data(matrix, "2.16.1")["releases"]
    assert row["packages"] == {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"}
    assert row["and_cuda"] is False
    assert row["chosen"]["cpu"] == "python:3.12-slim-bookworm"


def test_what_a_release_needs_leaves_no_python_out_that_it_has(matrix: Matrix) -> None:
    for minor in matrix.minors.values():
        for release in minor.releases.values():
            assert set(release.lacks) <= set(release.pythons), release.version
            assert set(release.lacks_arm) <= set(release.pythons_arm), release.version
