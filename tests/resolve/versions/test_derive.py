"""Rows of the matrix for releases that are newer than it."""

from __future__ import annotations

import pytest

from tests.resolve.versions.test_resolve import spec
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.resolve.frameworks.pythons import list_pythons
from training_imgtool.resolve.frameworks.tensorflow.newer import add_release, needs_index
from training_imgtool.resolve.versions.matrix import load_matrix
from training_imgtool.resolve.versions.resolve import resolve

MATRIX = load_matrix()
NEWEST = [*MATRIX.minors][-1]
FILES = {
    "tensorflow": tuple(
        f"tensorflow-9.9.0{suffix}-cp{python}-cp{python}-{platform}.whl"
        for suffix in ("rc0", "")
        for python in ("311", "312", "314")
        for platform in ("manylinux_2_27_x86_64", "manylinux_2_27_aarch64", "macosx_12_0_arm64", "win_amd64")
    ),
    "tensorflow-cpu": ("tensorflow_cpu-9.9.0rc0-cp311-cp311-manylinux_2_27_x86_64.whl",),
    "tensorflow-gpu": ("tensorflow-gpu-2.12.0.tar.gz",),
    "tensorflow-tpu": (),
}
REQUIRES = (
    "h5py~=3.15.1",
    "protobuf>=6.31.1,<9",
    "setuptools",
    "old; python_version < '3.9'",
    "nvidia-cudnn-cu13<10.0,>=9.10.1.4; extra == 'and-cuda'",
    "nvidia-cuda-runtime-cu13<14,>=13.0.48 ; extra == 'and-cuda'",
    "not a requirement (",
)


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        *((version, True) for version in ("9.9.0rc0", "9.9.0", f"{NEWEST}.99", "2.15.99")),
        *((version, False) for version in ("2.21.0", "2.16.0", "2.21.0rc1", "2.15.1", "1.15.1")),
    ],
)
def test_what_needs_index(version: str, *, newer: bool) -> None:
    assert needs_index(MATRIX, version) is newer


def test_pythons_by_file_names() -> None:
    assert list_pythons(FILES["tensorflow"], "9.9.0", "x86_64") == ("3.11", "3.12", "3.14")
    assert list_pythons(("junk.whl", "tensorflow-9.9.0-cp311-cp311-win_amd64.whl"), "9.9.0", "x86_64") == ()


def test_a_row_of_a_new_minor() -> None:
    matrix = add_release(MATRIX, "9.9.0rc0", FILES, REQUIRES)
    minor, release = matrix.release("9.9.0rc0", TENSORFLOW)
    assert release.pythons == release.pythons_arm == ("3.11", "3.12", "3.14")
    assert release.packages == {"tensorflow", "tensorflow-cpu"}
    assert minor.requires == {"h5py": "~=3.15.1", "protobuf": "<9,>=6.31.1", "setuptools": ""}
    assert (minor.cuda, minor.cudnn, minor.bases) == ("13.0", "9.10", ())
    assert minor.add == MATRIX.minors[NEWEST].add
    (variant,) = resolve(spec("9.9.0rc0"), matrix).variants
    assert variant.requirements[0] == "tensorflow-cpu==9.9.0rc0"
    assert "9.9" not in MATRIX.minors


def test_a_patch_keeps_what_its_minor_lacks_and_metadata_does_not_say() -> None:
    files = {"tensorflow": ("tensorflow-2.15.99-cp311-cp311-manylinux2014_x86_64.whl",)}
    before = MATRIX.minors["2.15"]
    assert before.constraints
    minor, _ = add_release(MATRIX, "2.15.99", files, ()).release("2.15.99", TENSORFLOW)
    assert minor.constraints == before.constraints
    assert (minor.cuda, minor.bases) == (before.cuda, before.bases)
    assert set(before.releases) < set(minor.releases)
    name = before.constraints[0].partition("<")[0]
    minor, _ = add_release(MATRIX, "2.15.99", files, (f"{name}<99",)).release("2.15.99", TENSORFLOW)
    assert not [row for row in minor.constraints if row.startswith(name)]
