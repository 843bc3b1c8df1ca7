"""`imgtool lint`: checks a job file that someone wrote, for Kubernetes or Vertex AI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_imgtool.base.version import __version__
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json

if TYPE_CHECKING:
    from training_imgtool.jobs.lint import Message

_SARIF_LEVELS = {"error": "error", "warning": "warning", "hint": "note"}


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("lint")(lint)


def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file, YAML or JSON; - reads stdin.")],
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Where the job will run.")] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="What imgtool's tables lack is a warning, not an error.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print a SARIF 2.1.0 log, which code hosts show.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Check a job file against the rules of its service.

    An error is what the service refuses, with the source of the rule. A warning is what the service accepts although it
    causes trouble later, or that one of several documents was not checked. A hint is what a flag supplies. The exit
    code is 3 if there is an error.
    """
    from training_imgtool.cli.commands.job_files.lint import lint_job_file
    from training_imgtool.jobs.model import Severity

    messages = lint_job_file(file, allow_unknown=allow_unknown, region=region, strict=strict)
    wrong = any(message.severity is Severity.ERROR for message in messages)
    if sarif:
        emit_json(_sarif(messages))
    elif as_json:
        emit_json({"ok": not wrong, "findings": [_row(message) for message in messages]})
    else:
        emit("".join(f"{message}\n" + (f"  {message.hint}\n" if message.hint else "") for message in messages))
    if wrong:
        raise typer.Exit(3)


def _row(message: Message) -> dict[str, Any]:
    return {
        "file": message.file,
        "line": message.line,
        "column": message.column,
        "field": message.field,
        "severity": str(message.severity),
        "message": message.message,
        "hint": message.hint,
        "source": message.source,
    }


def _sarif(messages: Sequence[Message]) -> dict[str, Any]:
    """Writes the findings as a SARIF log of one run."""
    results = [
        {
            "ruleId": f"job-file/{message.severity}",
            "level": _SARIF_LEVELS[message.severity],
            "message": {"text": ": ".join(filter(None, (message.field, message.message, message.hint)))},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": message.file},
                        "region": {"startLine": message.line, "startColumn": message.column},
                    }
                }
            ],
        }
        for message in messages
    ]
    driver = {
        "name": "imgtool",
        "version": __version__,
        "rules": [{"id": f"job-file/{level}"} for level in _SARIF_LEVELS],
    }
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
