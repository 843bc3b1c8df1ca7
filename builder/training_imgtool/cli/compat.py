"""`imgtool compat`: the version matrix, and whether it still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.errors import UsageError
from training_imgtool.core.threads import SEVERITY_ORDER


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("compat")(compat)


def compat(
    release: Annotated[str | None, typer.Argument(metavar="[TF]", help="A TensorFlow release or minor.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Ask the package index and the registries whether the matrix still holds.")
    ] = False,
    locks: Annotated[
        list[Path] | None,
        typer.Option("--lock", metavar="FILE", help="With --check: check the bases of this lock, too."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Print the version matrix. It lists Python, CUDA, cuDNN and base images per TensorFlow release, with sources."""
    from training_imgtool.commands.compat import as_data, as_text
    from training_imgtool.versions.matrix import load_matrix

    if check:
        _check(release, tuple(locks or ()), as_json=as_json)
    if locks:
        raise UsageError("--lock names what --check looks at", hint="add --check")
    matrix = load_matrix()
    if as_json:
        emit_json({"ok": True, **as_data(matrix, release)})
    else:
        emit(as_text(matrix, release))


def _check(release: str | None, locks: tuple[Path, ...], *, as_json: bool) -> None:
    """Prints every difference and every question without an answer; ends with 10, the most severe failure, or 0."""
    from training_imgtool.commands.drift import check_matrix

    result = check_matrix(machine.settings(), release=release, locks=locks)
    codes = {10} if result.drifts else {row.code for row in result.unanswered}
    code = next((code for code in SEVERITY_ORDER if code in codes), 0)
    if as_json:
        emit_json({"ok": code == 0, **result.as_data()})
    else:
        emit(result.as_text())
    raise typer.Exit(code)
