"""Defines the command line for typer: the verbs, their help and their completion."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from itertools import takewhile
from typing import Annotated, Any

import typer
import typer.core

from training_imgtool.base.errors import UsageError
from training_imgtool.base.version import __version__
from training_imgtool.cli.options import Verb
from training_imgtool.cli.output import emit, emit_error
from training_imgtool.model.value_rules import find_cure, find_nearest

_FIRST = ("init", "push", "config", "run", "verify")  # all that most people need
_MORE = ("submit", "build", "lock", "show", "render", "lint", "sign", "doctor", "prune", "compat", "schema")
_ABOUT = ("help", "completion", "version")  # in one module, about.py, as `help_` and so on
VERBS = (*_FIRST, *_MORE, *_ABOUT)  # in the order of the help; every other verb is a function in a module of its name


class _Verbs(typer.core.TyperGroup):
    """Lists the verbs that most people need before all other verbs, and says what to do instead of an unknown verb."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the verb at the start of `args`; raises UsageError for a word that is none."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise unknown_verb(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes two sections of verbs, with columns of equal width."""
        width = max(map(len, VERBS))
        for title, names in (("Commands", _FIRST), ("More", (*_MORE, *_ABOUT))):
            found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            if found:
                with formatter.section(title):
                    most = formatter.width - 6 - width
                    rows = [(name.ljust(width), command.get_short_help_str(most)) for name, command in found]
                    formatter.write_dl(rows)


def unknown_verb(word: str) -> UsageError:
    """Returns the error for a word that is no verb, with the verb that its user probably meant."""
    close = find_nearest(word, VERBS)
    hint = find_cure("verbs", word.lower()) or (f"did you mean {close}?" if close else "imgtool help lists the verbs")
    return UsageError(f"imgtool has no verb {word}", hint=hint)


def command_line(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """Returns a command line that has only these verbs."""
    app = typer.Typer(
        name="imgtool",
        cls=_Verbs,
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        help="Build training images from one spec, push them by digest, and write the job file that runs them.",
        epilog="For a first project: imgtool init. Without SPEC, imgtool reads ./image.yaml or"
        " ./imgtool.yaml, otherwise the only spec in images/*. Results go to stdout, progress goes to stderr.",
    )
    for verb in verbs:
        module = importlib.import_module(f"training_imgtool.cli.{'about' if verb in _ABOUT else verb}")
        function = getattr(module, f"{verb}_" if verb in _ABOUT else verb)
        app.command(verb, cls=getattr(module, "COMMAND", Verb))(function)
    app.callback()(_options)
    return app


def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
) -> None:
    """Declares the options of `imgtool` itself. Without a verb, prints the help to stderr and exits with 2."""
    if version:
        emit(f"imgtool {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        emit_error(f"{context.get_help()}\n")
        raise typer.Exit(UsageError.exit_code)


def run(arguments: list[str]) -> Any:
    """Runs the verb at the start of `arguments`; returns the verb's exit code or None. Raises typer's own errors."""
    first = [*takewhile({"-q", "--quiet", "-v", "--verbose"}.__contains__, arguments)]  # as others take them, too
    verb, rest = arguments[len(first) :][:1], arguments[len(first) + 1 :]
    loaded = verb if {*verb} & {*VERBS} else VERBS  # all for help, completion and misspelt verbs
    command = typer.main.get_command(command_line(loaded))
    name = "training-imgtool" if sys.argv[0].endswith("training-imgtool") else "imgtool"
    return command.main(args=[*verb, *first, *rest], prog_name=name, standalone_mode=False)
