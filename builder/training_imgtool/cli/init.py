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
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    tensorflow: Annotated[str | None, typer.Option(help="The TensorFlow release; by default the project's.")] = None,
    accelerator: Annotated[Accelerator | None, typer.Option(help="By default what the project asks for.")] = None,
    name: Annotated[str | None, typer.Option(help="The images' name; by default the project's or folder's.")] = None,
) -> None:
    """Write a first spec for the folder's code, else with a small trainer. Existing files stay as they are."""
    from training_imgtool.commands.init import write_starter

    written, notes = write_starter(folder, name=name, tensorflow=tensorflow, accelerator=accelerator)
    emit("".join(f"{path}\n" for path in written))
    for note in notes:
        emit_note(note)
    where = "" if folder == Path() else f" {shlex.quote(str(folder))}"
    emit_note(f"next: imgtool build{where}    # then imgtool run{where} trains here; build --push is for a registry")
