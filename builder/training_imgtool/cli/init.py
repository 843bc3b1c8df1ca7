"""`imgtool init`: a first spec that works."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli.output import emit, emit_note
from training_imgtool.spec.model import Accelerator


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("init")(init)


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the code is, and the spec goes.")] = Path(),
    tensorflow: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The TensorFlow release; by default the project's.")
    ] = None,
    accelerator: Annotated[Accelerator | None, typer.Option(help="By default what the project asks for.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The images' name; by default the project's or folder's.")
    ] = None,
) -> None:
    """Write a first spec for the code in FOLDER. Without code, write a trainer too. Existing files stay as they are."""
    from training_imgtool.commands.starter.init import write_starter

    written, notes = write_starter(folder, name=name, tensorflow=tensorflow, accelerator=accelerator)
    emit("".join(f"{path}\n" for path in written))
    for note in notes:
        emit_note(note)
    where = "" if folder == Path() else f" {shlex.quote(str(folder))}"
    emit_note(f"next: imgtool push{where}    # to a registry; imgtool run{where} trains here, with a Docker Engine")
