"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("show")(show)


def show(
    spec: opt.Spec = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Print what each image consists of, and its tag."""
    from training_imgtool.build.inputs import open_spec, prepare
    from training_imgtool.commands import show

    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = prepare(open_spec(spec), settings, view, registry=registry, locked=locked, write=False)
    data = show.as_data(inputs)
    if as_json:
        emit_json({"ok": True, **data})
    else:
        emit(show.as_text(data))
