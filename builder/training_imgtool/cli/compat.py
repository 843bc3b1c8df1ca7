"""`imgtool compat`: the version matrix."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("compat")(compat)


def compat(
    release: Annotated[str | None, typer.Argument(metavar="[TF]", help="A TensorFlow release or minor.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the version matrix. It lists Python, CUDA, cuDNN and base images per TensorFlow release, with sources."""
    from training_imgtool.cli.commands.compat import as_data, as_text
    from training_imgtool.resolve.versions.matrix import load_matrix

    matrix = load_matrix()
    if as_json:
        emit_json({"ok": True, **as_data(matrix, release)})
    else:
        emit(as_text(matrix, release))
