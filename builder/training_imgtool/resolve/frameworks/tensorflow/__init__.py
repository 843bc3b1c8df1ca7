"""The functions of `resolve.frameworks.Rules` for TensorFlow, which use the version matrix."""

from __future__ import annotations

from typing import Any

from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.frameworks.tensorflow.cuda import check_cuda_base, check_gpus, cuda_base, find_cuda
from training_imgtool.resolve.frameworks.tensorflow.install import constraints, libraries, package, requirements
from training_imgtool.resolve.frameworks.tensorflow.newer import learn, needs_index, notes_between
from training_imgtool.resolve.frameworks.tensorflow.rules import check_keras, check_libtpu, check_spec
from training_imgtool.resolve.versions.closure import Package
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, load_matrix
from training_imgtool.resolve.versions.rules import Finding
from training_imgtool.resolve.wheels.index.index import Index as FileIndex

__all__ = [
    "check_cuda_base",
    "check_gpus",
    "check_lock",
    "check_spec",
    "check_wheels",
    "constraints",
    "cuda_base",
    "find_cuda",
    "learn",
    "libraries",
    "list_rows",
    "needs_index",
    "notes_between",
    "package",
    "requirements",
    "tabulate",
]


def list_rows(matrix: Matrix, index: FileIndex | None) -> dict[str, tuple[Minor, Release]]:
    """Returns the rows of imgtool's table."""
    del index
    return {version: (minor, row) for minor in matrix.minors.values() for version, row in minor.releases.items()}


def tabulate(release: str | None, settings: Settings) -> tuple[dict[str, Any], str]:  # noqa: ARG001  one signature
    """Returns the version matrix, or the row of one release or minor version."""
    from training_imgtool.resolve.frameworks.tensorflow.table import as_data, as_text

    matrix = load_matrix()
    return as_data(matrix, release), as_text(matrix, release)


def check_lock(matrix: Matrix, variant: Variant, index: Index) -> list[Finding]:
    """Finds a libtpu that a variant needs and no index has, because only Google's own page offers it."""
    if variant.package != "tensorflow-tpu":
        return []
    return check_libtpu(matrix.release(variant.release, variant.framework)[1], matrix, index.find_links())


def check_wheels(
    spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...], named: frozenset[str], packages: tuple[Package, ...]
) -> Variant:
    """Returns the variant; raises FieldError if a variable selects Keras 2, but no wheel contains Keras 2."""
    del named, packages
    check_keras(spec, variant, wheels)
    return variant
