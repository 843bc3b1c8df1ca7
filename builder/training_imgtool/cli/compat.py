"""`imgtool compat`: prints the version matrix."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit_result
from training_imgtool.model.frameworks import JAX


def compat(
    release: Annotated[
        str | None, typer.Argument(metavar="[TF]", help="A TensorFlow release or minor version, or the word jax.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the version matrix. The matrix lists Python, CUDA, cuDNN, base images and sources per TensorFlow release.

    `imgtool compat jax` prints the newest JAX releases on the package index, and the Pythons that they support.
    """
    from training_imgtool.resolve.frameworks.tensorflow.table import as_data, as_text
    from training_imgtool.resolve.versions.matrix import load_matrix
    from training_imgtool.resolve.wheels.store import WheelStore

    if release == JAX.key:
        from training_imgtool.resolve.frameworks.jax import list_releases

        with open_machine("quiet") as machine:
            releases = list_releases(WheelStore(machine.settings).index)
        rows = [
            (row["jax"], *(", ".join(row[key]) or "none" for key in ("python", "python_arm64"))) for row in releases
        ]
        lines = (f"{jax:10}  x86-64: {pythons}  aarch64: {pythons_arm}\n" for jax, pythons, pythons_arm in rows)
        emit_result({"ok": True, "releases": releases}, "".join(lines), as_json=as_json)
        return
    matrix = load_matrix()
    emit_result({"ok": True, **as_data(matrix, release)}, as_text(matrix, release), as_json=as_json)
