"""`imgtool compat`: prints which releases of a framework go with which Python, CUDA and base images."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import settings
from training_imgtool.cli.output import emit_result
from training_imgtool.model.frameworks import FRAMEWORKS


def compat(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[FRAMEWORK|RELEASE]", help="tensorflow, jax, torch or a TensorFlow release."),
    ] = None,
    release: Annotated[str | None, typer.Argument(metavar="[RELEASE]", help="A release of the framework.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the version matrix. The matrix lists Python, CUDA, cuDNN, base images and sources per TensorFlow release.

    `imgtool compat jax` prints the newest JAX releases on the package index, and the Pythons that they support;
    `imgtool compat torch` does so for PyTorch.
    """
    from training_imgtool.resolve.frameworks import rules_of

    first = next(iter(FRAMEWORKS))
    if name is not None and name not in FRAMEWORKS:
        if not name[:1].isdigit():
            raise UsageError(f"{name!r}: expected {', '.join(FRAMEWORKS)}, or a release of {FRAMEWORKS[first].title}")
        name, release = first, name
    data, text = rules_of(FRAMEWORKS[name or first]).tabulate(release, settings())
    emit_result({"ok": True, **data}, text, as_json=as_json)
