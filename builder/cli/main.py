"""The `imgtool` command: registers the verbs, and turns every failure into one clear message and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from builder import __version__
from builder.cli import (
    build,
    compat,
    config,
    doctor,
    init,
    lint,
    lock,
    push,
    render,
    schema,
    show,
)
from builder.cli.output import Broken, emit, report

app = typer.Typer(
    name="imgtool",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="From one spec: TensorFlow training images, one per role, pushed by digest, and the job file that runs them.",
    epilog="Without SPEC: ./image.yaml, else the only images/*/image.yaml. Results go to stdout, progress to stderr.",
)
for verb in (build, push, config, render, show, lock, lint, init, doctor, compat, schema):
    verb.register(app)


def _version(value: bool) -> None:
    if value:
        emit(f"imgtool {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Runs the command line and exits: 0 on evidence, else the code of the failure (docs/exit-codes.md)."""
    os.umask(0o022)
    try:
        code = _run(sys.argv[1:])
    except Broken:
        code = 141
    _leave(code)


def _run(arguments: list[str]) -> int:
    from builder.signals import Cancelled, handling

    command = typer.main.get_command(app)
    try:
        with handling():
            result = command.main(args=arguments, prog_name="imgtool", standalone_mode=False)
    except Cancelled as stopped:
        sys.stderr.write("\nimgtool: stopped\n")
        return stopped.exit_code
    except Broken:
        raise
    except Exception as error:  # noqa: BLE001 - the one place where everything becomes an exit code
        return report(error, arguments)
    return result if isinstance(result, int) else 0


def _leave(code: int) -> None:
    """Ends the process without Python's own last flush, which would print a traceback on a broken pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


if __name__ == "__main__":
    main()
