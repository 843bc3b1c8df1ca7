"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json, emit_note

if TYPE_CHECKING:
    from training_imgtool.core.settings import Settings
    from training_imgtool.pipeline.inputs import Inputs


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("show")(show)


def show(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    why: Annotated[
        bool, typer.Option("--why", help="Print instead what differs from the images that this machine pushed last.")
    ] = False,
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
        inputs = plan_images(choice, settings, view, registry=registry, locked=locked, check=not (why or no_check))
    if why:
        _print_why(inputs, settings, as_json=as_json)
        return
    for other in inputs.others:
        emit_note(f"{other.plan.platform}: {', '.join(str(image.tag or image.key[:32]) for image in other.images)}")
    data = show.as_data(inputs)
    if as_json:
        emit_json({"ok": True, **data})
    else:
        emit(show.as_text(data))


def _print_why(inputs: Inputs, settings: Settings, *, as_json: bool) -> None:
    """Prints what differs from the images that were pushed last; of each platform."""
    from training_imgtool.commands.why import explain
    from training_imgtool.registry.connect import connect

    with connect(settings) as registries:
        rows = [row for each in inputs.by_platform for row in explain(each, settings.cache, registries)]
    if as_json:
        emit_json({"ok": True, "roles": [row.as_data() for row in rows]})
    else:
        emit("".join(row.as_text() for row in rows))
