"""The `imgtool` command: registers the verbs, and turns every failure into one clear message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from builder import __version__
from builder.cli.output import Broken, emit, open_missing, report, report_stop

BROKEN_PIPE = 141  # as shells count SIGPIPE
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
        importlib.import_module(f"builder.cli.{verb}").register(app)
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


def main() -> None:
    """Runs the command line and exits: 0 on evidence, else the code of the failure (docs/exit-codes.md)."""
    gc.set_threshold(100_000)  # most of a short run's objects are its code: looking through them again took 5 ms
    os.umask(0o022)
    open_missing()
    _leave(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    from builder.signals import Cancelled, end_children, handling

    try:
        with handling():
            return _done(arguments)
    except Cancelled as stopped:
        end_children()
        return report_stop(str(stopped), stopped.exit_code, arguments)


def _done(arguments: list[str]) -> int:
    try:
        command = typer.main.get_command(command_line(_asked(arguments)))
        result = command.main(args=arguments, prog_name="imgtool", standalone_mode=False)
    except Broken:
        return BROKEN_PIPE
    except SystemExit as end:  # the command-line library's own answer when the reader of its help has gone
        return BROKEN_PIPE if isinstance(end.__context__, BrokenPipeError) else int(end.code or 0)
    except Exception as error:  # noqa: BLE001 - the one place where everything becomes an exit code
        return report(error, arguments)
    return result if isinstance(result, int) else 0


def _asked(arguments: list[str]) -> tuple[str, ...]:
    """The verb that is asked for: loading all and working out their options takes 15 ms."""
    return (arguments[0],) if arguments and arguments[0] in VERBS else VERBS


def _leave(code: int) -> None:
    """Ends the process without Python's own last flush, which would print a traceback on a broken pipe."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
