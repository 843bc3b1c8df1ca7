"""The package index of today still gives a complete set of wheels for every TensorFlow minor.

Nothing is downloaded but metadata: uv resolves, and each wheel's size is asked for.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.plans import entry_point
from training_imgtool.base.progress import silent
from training_imgtool.base.settings import from_environment
from training_imgtool.base.yamlfile.tree import Position, Table
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import LockedVariant
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.lock.lockfile import dump_lock
from training_imgtool.resolve.lock.parse import parse_lock
from training_imgtool.resolve.lock.update import make_lock
from training_imgtool.resolve.versions.matrix import Matrix, load_matrix

pytestmark = [pytest.mark.network, pytest.mark.slow]
GPU_MINORS = tuple(f"2.{number}" for number in range(4, 22))
CPU_MINORS = ("1.15", *GPU_MINORS)
SAMPLE = ("2.4", "2.20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For a cache that nobody else fills: metadata is fetched, and wheels are made, once for all tests here."""
    return tmp_path_factory.mktemp("minors")


def lock(matrix: Matrix, folder: Path, release: str, accelerator: Accelerator, **more: Any) -> LockedVariant:
    keys = {"trim": False, **more}  # to trim is to download every wheel
    spec = ImageSpec(name="mnist", tensorflow=release, accelerator=accelerator, roles={Role.MASTER: RoleSpec()}, **keys)
    spec_file = SpecFile(
        path=folder / "image.yaml",
        folder=folder,
        spec=spec,
        entry=entry_point(),
        text_sha256="0" * 64,
        positions={},
        root=Table(Position(1, 1), ()),
    )
    settings = from_environment({**os.environ, "IMGTOOL_CACHE": str(folder / "cache")})
    made = make_lock(spec_file, matrix, lambda _: "sha256:" + "a" * 64, settings, silent)
    assert parse_lock(dump_lock(made).encode(), "image.lock") == made
    return made.variants[0]


@pytest.mark.parametrize(
    "sample", [pytest.param(SAMPLE, id="sample"), pytest.param(None, id="all", marks=pytest.mark.long)]
)
def test_minors_for_gpus_and_cpus(folder: Path, sample: tuple[str, ...] | None) -> None:
    matrix = load_matrix()
    pairs = [(minor, Accelerator.CPU) for minor in sample or CPU_MINORS]
    pairs += [(minor, Accelerator.GPU) for minor in sample or GPU_MINORS]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda pair: lock(matrix, folder, matrix.minors[pair[0]].recommended, pair[1]), pairs))
    for (minor, accelerator), locked in zip(pairs, made, strict=True):
        wheels = {wheel.name: wheel for wheel in locked.wheels}
        assert wheels[locked.variant.package].version == matrix.minors[minor].recommended
        assert {"numpy", "protobuf", "tensorboard"} <= set(wheels), (minor, accelerator)
        assert locked.installer.name == "pip"
        assert all(wheel.size > 500 for wheel in locked.wheels)
        size = sum(wheel.size for wheel in locked.wheels)
        assert 100_000_000 < size < 1_000_000_000, (minor, accelerator, size)
        if minor in {"2.4", "2.5", "2.6"}:
            assert wheels["termcolor"].file == "termcolor-1.1.0-py3-none-any.whl"
            assert wheels["wrapt"].file == "wrapt-1.12.1-py3-none-any.whl"


def test_python_3_6(folder: Path) -> None:
    locked = lock(load_matrix(), folder, "1.15.5", Accelerator.CPU, python="3.6")
    assert locked.installer.version == "21.3.1"
    assert {"gast-0.2.2-py3-none-any.whl", "termcolor-1.1.0-py3-none-any.whl"} <= {w.file for w in locked.wheels}


@pytest.mark.long
def test_cuda_from_wheels_is_held_at_the_tested_versions(folder: Path) -> None:
    locked = lock(load_matrix(), folder, "2.20.0", Accelerator.GPU, cuda_from="wheels")
    versions = {wheel.name: wheel.version for wheel in locked.wheels}
    assert versions["nvidia-cudnn-cu12"] == "9.3.0.75"
    assert versions["nvidia-cuda-runtime-cu12"] == "12.5.82"
