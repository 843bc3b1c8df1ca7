"""`imgtool help`, `completion` and `version`: print facts about imgtool itself."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
import typer.completion
import typer.main

from training_imgtool.base.version import __version__
from training_imgtool.cli import app as verbs
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit

_Verb = Annotated[
    str | None, typer.Argument(metavar="[VERB]", help="A verb, such as push.", autocompletion=lambda: verbs.VERBS)
]


def help_(verb: _Verb = None) -> None:
    """Print the help of a command with all its options."""
    if verb is not None and verb not in verbs.VERBS:
        raise verbs.unknown_verb(verb)
    command = typer.main.get_command(verbs.command_line((verb,) if verb else verbs.VERBS))
    context = typer.Context(command, info_name="imgtool", **command.context_settings)
    if verb:
        command = command.commands[verb]  # type: ignore[attr-defined]
        context = typer.Context(command, info_name=verb, parent=context)
        context.meta[opt.WHOLE] = True
    emit(command.get_help(context) + "\n")


def completion_(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes imgtool's commands in a shell."""
    root, name = ctx.find_root().command, str(ctx.find_root().info_name)
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    typer.completion.shell_complete(root, {}, name, variable, f"source_{shell}")


def version_() -> None:
    """Print the version."""
    emit(f"imgtool {__version__}\n")
