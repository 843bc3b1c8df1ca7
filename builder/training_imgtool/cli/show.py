"""`imgtool show`: prints the plan of a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit_note, emit_result

if TYPE_CHECKING:
    from training_imgtool.app.history import Pushed
    from training_imgtool.app.why import Why
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.inputs import Inputs


def show(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    why: Annotated[
        bool, typer.Option("--why", help="Print how the images differ from those that this machine pushed last.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="List the images in the registry by the date of their first push.")
    ] = False,
    no_check: opt.NoCheck = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Print the tag and the contents of each image."""
    from training_imgtool.app import show
    from training_imgtool.app.images import plan_images

    if why and history:
        raise UsageError("--why and --history exclude each other", hint="leave one of them out")
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    with open_machine(progress) as machine:
        inputs = plan_images(choice, machine, check=not (why or history or no_check))
        rows = _explain(inputs, machine) if why else ()
        pushed = _list_pushed(inputs, machine) if history else ()
    if history:
        document = {"ok": True, "images": [row.as_data() for row in pushed]}
        emit_result(document, "".join(row.as_text() for row in pushed), as_json=as_json)
        return
    if why:
        document = {"ok": True, "roles": [row.as_data() for row in rows]}
        emit_result(document, "".join(row.as_text() for row in rows), as_json=as_json)
        return
    for other in inputs.others:
        emit_note(f"{other.spec.platform}: {', '.join(str(image.tag or image.key[:32]) for image in other.images)}")
    data = show.as_data(inputs)
    emit_result({"ok": True, **data}, show.as_text(data), as_json=as_json)


def _list_pushed(inputs: Inputs, machine: Machine) -> tuple[Pushed, ...]:
    from training_imgtool.app.history import list_pushed

    return list_pushed(inputs, machine)


def _explain(inputs: Inputs, machine: Machine) -> tuple[Why, ...]:
    """Finds out, for each platform, how the images differ from those that were pushed last."""
    from training_imgtool.app.why import explain

    return tuple(
        row for each in inputs.by_platform for row in explain(each, machine.settings.state, machine.registries)
    )
