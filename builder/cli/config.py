"""`imgtool config`: writes the job file, every image by digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli import machine
from builder.cli import options as opt
from builder.cli.output import emit, note
from builder.errors import UsageError
from builder.spec import Target

if TYPE_CHECKING:
    from builder.jobs.model import Format


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("config")(config)


def config(
    spec: opt.Spec = None,
    target: Annotated[Target | None, typer.Option(help="The job file's format, instead of job.target.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")] = None,
    registry: opt.Registry = None,
    job_id: Annotated[str | None, typer.Option("--job-id", help="The job's name.")] = None,
    command: Annotated[bool, typer.Option("--command", help="Print the command that submits the job.")] = False,
    output_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="yaml, json, gcloud (one line, no file), env, docker-run.")
    ] = "yaml",
    hosts: Annotated[
        str | None, typer.Option(metavar="ROLE=HOST[:PORT],…", help="For tf-config: the machines.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Convert this AI Platform job instead of a spec.")
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept machines and accelerators not in imgtool's tables.")
    ] = False,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
) -> None:
    """Write the job file for the images of the current inputs, which must be in the registry."""
    from builder import jobfile

    request = jobfile.Request(
        target=target,
        job_id=job_id,
        form=_format(output_format),
        hosts=hosts,
        allow_unknown=allow_unknown,
        output=output,
    )
    with machine.progress(progress) as view:
        if source is not None:
            written = jobfile.converted(source, request, machine.settings(), view)
        else:
            written = jobfile.made(spec, request, machine.settings(), view, registry=registry, locked=locked)
    for line in written.notes:
        note(line)
    if command:
        emit(written.command + "\n")
    elif output is None:
        emit(written.text)


def _format(name: str) -> Format:
    from builder.jobs.model import Format

    if name not in list(Format):
        raise UsageError(f"--format {name}: expected {', '.join(Format)}")
    return Format(name)
