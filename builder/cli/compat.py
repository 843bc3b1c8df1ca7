"""`imgtool compat`: the version matrix."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli import options as opt
from builder.cli.output import emit, emit_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("compat")(compat)


def compat(
    release: Annotated[str | None, typer.Argument(metavar="[TF]", help="A TensorFlow release or minor.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Print which Python, CUDA, cuDNN and base image go with which TensorFlow, with sources."""
    from builder.compat import load_matrix
    from builder.compat_table import as_data, as_text

    matrix = load_matrix()
    if as_json:
        emit_json({"ok": True, **as_data(matrix, release)})
    else:
        emit(as_text(matrix, release))
