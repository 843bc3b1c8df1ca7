"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json, emit_note


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("show")(show)


def show(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    no_check: opt.NoCheck = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Print what each image consists of, and its tag."""
    from training_imgtool.commands import show
    from training_imgtool.commands.images import plan_images
    from training_imgtool.pipeline.request import SpecChoice

    choice = SpecChoice(path=spec, values=opt.read_changes(changes))
    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = plan_images(choice, settings, view, registry=registry, locked=locked, check=not no_check)
    for other in inputs.others:
        emit_note(f"{other.plan.platform}: {', '.join(str(image.tag or image.key[:32]) for image in other.images)}")
    data = show.as_data(inputs)
    if as_json:
        emit_json({"ok": True, **data})
    else:
        emit(show.as_text(data))
