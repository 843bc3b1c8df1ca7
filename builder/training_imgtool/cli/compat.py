"""`imgtool compat`: the version matrix."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.model.frameworks import JAX


def compat(
    release: Annotated[
        str | None, typer.Argument(metavar="[TF]", help="A TensorFlow release or minor, or the word jax.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the version matrix. It lists Python, CUDA, cuDNN and base images per TensorFlow release, with sources.

    Of JAX, print the newest releases on the package index, with their Pythons.
    """
    from training_imgtool.resolve.frameworks.tensorflow.table import as_data, as_text
    from training_imgtool.resolve.versions.matrix import load_matrix
    from training_imgtool.resolve.wheels.store import WheelStore

    if release == JAX.key:
        from training_imgtool.resolve.frameworks.jax import list_releases

        with open_machine("quiet") as machine:
            releases = list_releases(WheelStore(machine.settings).index)
        if as_json:
            emit_json({"ok": True, "releases": releases})
        for row in () if as_json else releases:
            pythons = (", ".join(row[key]) or "none" for key in ("python", "python_arm64"))
            emit("{}  x86-64: {}  aarch64: {}\n".format(str(row["jax"]).ljust(10), *pythons))
        return
    matrix = load_matrix()
    if as_json:
        emit_json({"ok": True, **as_data(matrix, release)})
    else:
        emit(as_text(matrix, release))
