"""The matrix against the facts it was written from, where those are at hand, and its own consistency."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training_imgtool.commands.compat import as_data, as_text
from training_imgtool.core.errors import FieldError, UsageError
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.versions.matrix import (
    Matrix,
    load_matrix,
    python_minors,
    version_key,
)
from training_imgtool.versions.matrix_file import matrix_version

FACTS = Path(__file__).resolve().parents[3] / "shared/facts/compat.yaml"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix()


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    if not FACTS.is_file():
        pytest.skip("the fact sheets are not beside this checkout")
    import yaml

    data: dict[str, Any] = yaml.safe_load(FACTS.read_text())
    return data


def test_minors_and_releases_are_those_of_the_facts(matrix: Matrix, facts: dict[str, Any]) -> None:
    assert {name: set(minor.releases) for name, minor in matrix.minors.items()} == {
        name: set(row["releases"]) for name, row in facts["tensorflow"].items()
    }
    for name, row in facts["tensorflow"].items():
        for version, of_facts in row["releases"].items():
            release = matrix.minors[name].releases[version]
            assert list(release.pythons) == of_facts["python_linux_x86_64"], version
            assert list(release.pythons_arm) == of_facts.get("python_linux_aarch64", []), version
            assert release.date == of_facts["date"]
            kinds = {kind for kind in ("gpu", "cpu", "tpu") if of_facts[f"has_tensorflow_{kind}"]}
            assert release.packages == {"tensorflow", *(f"tensorflow-{kind}" for kind in kinds)}, version


def test_what_a_minor_was_built_with_and_needs(matrix: Matrix, facts: dict[str, Any]) -> None:
    for name, row in facts["tensorflow"].items():
        minor = matrix.minors[name]
        assert (minor.cuda, minor.cudnn) == (row["tested_cuda"], row["tested_cudnn"]), name
        assert list(minor.compute) == (row["wheel_built_with"]["compute"] or []), name
        own = [line for line in minor.constraints if not line.startswith("tensorflow-metadata")]  # a newer fact
        assert own == row["inject_constraints"], name
        assert list(minor.add) == row.get("inject_requirements", []), name
        assert minor.requires == row["requires"], name
        assert minor.and_cuda == (row["and_cuda_extra"] or {}), name
        assert minor.recommended == row["recommended_patch"], name
        assert (minor.glibc, minor.pip, minor.keras) == (row["min_glibc"], row["min_pip"], str(row["keras_major"]))


def test_bases_in_the_order_of_the_facts(matrix: Matrix, facts: dict[str, Any]) -> None:
    for name, row in facts["tensorflow"].items():
        base = row["base_image"]
        expected = [base["recommended"], *base["alternates"]] if base["recommended"] else []
        found = [(f"nvidia/cuda:{one.tag}", list(one.apt)) for one in matrix.minors[name].bases]
        assert found == [(one["image"], one.get("apt", [])) for one in expected], name
        assert bool(matrix.minors[name].no_base) is (base["recommended"] is None), name


def test_every_cuda_image(matrix: Matrix, facts: dict[str, Any]) -> None:
    words = {"supported": "supported", "unsupported_but_listed": "unsupported", "not_listed": "gone"}
    expected = facts["nvidia_cuda_images"]["images"]
    assert set(matrix.cuda_images) == set(expected)
    for tag, row in expected.items():
        image = matrix.cuda_images[tag]
        assert (image.cuda, image.os, image.cudnn) == (row["cuda"], row["os"], row["cudnn"]), tag
        assert image.status == words[row["status_2025_12"]], tag
        assert image.on_hub is row["devel_on_docker_hub_2026_05"], tag
        assert image.driver_path is ("/usr/local/nvidia/lib64" in row["ld_library_path"]), tag
    assert list(matrix.deleted_cuda) == facts["nvidia_cuda_images"]["deleted"]


def test_drivers_systems_and_tpu(matrix: Matrix, facts: dict[str, Any]) -> None:
    for cuda, row in facts["cuda"]["driver_min_linux"].items():
        assert (matrix.drivers[cuda].floor, matrix.drivers[cuda].toolkit) == (row["compat_floor"], row["toolkit"])
    for system in ("ubuntu18.04", "ubuntu20.04", "ubuntu22.04", "ubuntu24.04"):
        assert matrix.systems[system].python == facts["os_python"][system]["python"]
        assert matrix.systems[system].glibc == facts["os_python"][system]["glibc"]
    assert list(matrix.systems["ubuntu22.04"].deadsnakes) == facts["os_python"]["other_python"][0]["ubuntu22.04"]
    assert matrix.last_pip == facts["os_python"]["last_pip"]
    tpu = facts["tpu"]
    assert set(matrix.ai_platform_tpu) >= set(tpu["tpuTfVersion"]["known_supported"])
    pinned = {key: row for key, row in tpu["tensorflow_tpu_pypi"].items() if key != "note"}
    assert {key: row.version for key, row in matrix.libtpu.items()} == {k: row["libtpu"] for k, row in pinned.items()}
    assert {key: row.on_index == "true" for key, row in matrix.libtpu.items()} == {
        key: row["on_pypi"] is True for key, row in pinned.items()
    }


def test_rows_agree_with_each_other(matrix: Matrix) -> None:
    for minor in matrix.minors.values():
        assert minor.recommended in minor.releases
        assert set(minor.source.split()) <= set(matrix.sources)
        assert all(f"{name}=={version}" in matrix.sdists for name, version in minor.sdists.items())
        assert set(minor.and_cuda_broken) <= {*minor.releases, "python 3.11"}
        for base in minor.bases:
            image = matrix.cuda_images[base.tag]
            assert image.status != "gone"
            assert image.cudnn or base.apt
            assert image.os in matrix.systems


def test_version_is_read_without_parsing(matrix: Matrix) -> None:
    assert matrix_version() == matrix.version
    code = (
        "import sys, training_imgtool.versions.matrix_file as c; c.matrix_version(); assert 'yaml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions_that_do_not_exist_name_the_nearest(matrix: Matrix) -> None:
    for version, expected in [("2.16.0", "2.16.2"), ("1.15.1", "1.15.5"), ("2.0.5", "2.0.4"), ("3.0.0", "2.21.0")]:
        with pytest.raises(FieldError, match=f"has no TensorFlow {version}") as caught:
            matrix.release(version)
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


def test_both_tables_have_the_same_tpu_runtimes(matrix: Matrix) -> None:
    assert list(matrix.ai_platform_tpu) == read_table("machines/ai_platform.yaml")["tpu"]["runtimes"]


def test_what_a_release_needs_leaves_no_python_out_that_it_has(matrix: Matrix) -> None:
    for minor in matrix.minors.values():
        for release in minor.releases.values():
            assert set(release.lacks) <= set(release.pythons), release.version
            assert set(release.lacks_arm) <= set(release.pythons_arm), release.version
