"""The whole command line as the command-line library has it: all verbs, help, completion, and what is wrong."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from training_imgtool import __version__
from training_imgtool.cli.output import emit

VERBS = (
    "build",
    "push",
    "config",
    "run",
    "verify",
    "render",
    "show",
    "lock",
    "lint",
    "init",
    "doctor",
    "mirror",
    "prune",
    "compat",
    "schema",
)  # in the order of the help; each is a module of this package


def command_line(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The command line with these verbs."""
    app = typer.Typer(
        name="imgtool",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        help="From one spec: TensorFlow training images, one per role, pushed by digest, and the job file that runs"
        " them.",
        epilog="Without SPEC: ./image.yaml, else the only images/*/image.yaml. Results go to stdout, progress to"
        " stderr.",
    )
    for verb in verbs:
        importlib.import_module(f"training_imgtool.cli.{verb}").register(app)
    app.callback()(_options)
    return app


def _version(value: bool) -> None:
    if value:
        emit(f"imgtool {__version__}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


def run(arguments: list[str]) -> Any:
    """Runs the verb that `arguments` begin with and returns the exit code, or nothing; raises what the library does."""
    command = typer.main.get_command(command_line(_asked(arguments)))
    return command.main(args=arguments, prog_name="imgtool", standalone_mode=False)


def _asked(arguments: list[str]) -> tuple[str, ...]:
    """The verb that is asked for: loading all and working out their options takes 15 ms."""
    return (arguments[0],) if arguments and arguments[0] in VERBS else VERBS
