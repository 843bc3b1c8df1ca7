"""`imgtool render`: prints the Dockerfiles, or writes them and their build context into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit, emit_note


def render(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    roles: opt.Roles = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write Dockerfiles, context and docker-bake.json to DIR."),
    ] = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
) -> None:
    """Print the Dockerfile of each role. Any Docker builder makes the same images from the Dockerfiles."""
    from training_imgtool.app.render import write_build_folder
    from training_imgtool.plan.inputs import prepare

    if opt.is_stdout(output):
        output = None
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    with open_machine(progress) as machine:
        inputs = prepare(choice.open(), machine, choice, write=False)
        images = inputs.selected(tuple(roles or ()))
        if output is not None:
            write_build_folder(output, inputs, images, machine)
    if output is None:
        emit("\n".join(image.text for image in images))
        return
    emit_note(f"wrote {output}; in it, run docker buildx bake, or docker build -f {images[0].role}.Dockerfile context")
