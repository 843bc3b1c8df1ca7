"""`imgtool lint`: checks a job file that someone wrote, for any target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.progress import silent


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("lint")(lint)


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file: YAML or JSON.")],
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Where the job will run.")] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="What imgtool's tables lack is a warning, not an error.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    images: Annotated[
        bool, typer.Option("--images", help="Ask the registries: is each image there, and can the target read it?")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Check a job file against the rules of its service.

    An error is what the service refuses, with the source of the rule. A warning is what the service accepts although it
    causes trouble later. A hint is what a flag supplies. The exit code is 3 if there is an error.
    """
    from training_imgtool.jobs.lint import lint_file
    from training_imgtool.jobs.model import Severity

    if images:
        from training_imgtool.commands.job_files.lint import lint_with_images

        messages = lint_with_images(
            file, machine.settings(), silent, allow_unknown=allow_unknown, region=region, strict=strict
        )
    else:
        messages = lint_file(file, allow_unknown=allow_unknown, region=region, strict=strict)
    wrong = any(message.severity is Severity.ERROR for message in messages)
    if as_json:
        rows = [
            {
                "file": message.file,
                "line": message.line,
                "column": message.column,
                "field": message.field,
                "severity": str(message.severity),
                "message": message.message,
                "hint": message.hint,
                "source": message.source,
            }
            for message in messages
        ]
        emit_json({"ok": not wrong, "findings": rows})
    else:
        emit("".join(f"{message}\n" + (f"  {message.hint}\n" if message.hint else "") for message in messages))
    if wrong:
        raise typer.Exit(3)
