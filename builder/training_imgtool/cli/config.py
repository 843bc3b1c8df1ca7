"""`imgtool config`: writes the job file, which names every image by its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit, emit_note

if TYPE_CHECKING:
    from training_imgtool.jobs.model import Format


def config(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    target: opt.TargetName = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - means stdout.")
    ] = None,
    registry: opt.Registry = None,
    job_id: opt.JobId = None,
    command: Annotated[bool, typer.Option("--command", help="Print the command that submits the job.")] = False,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="yaml, json, gcloud, env or docker-run.",
            autocompletion=lambda: ["yaml", "json", "gcloud", "env", "docker-run"],
        ),
    ] = "yaml",
    hosts: Annotated[
        str | None, typer.Option(metavar="ROLE=HOST[:PORT],…", help="With --target tf-config: the hosts of each role.")
    ] = None,
    of_machine: Annotated[
        str | None,
        typer.Option("--machine", metavar="NAME", help="With --format env or docker-run: only NAME, such as worker-0."),
    ] = None,
    push: opt.Push = False,
    allow_unknown: opt.AllowUnknown = False,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
) -> None:
    """Write the job file for the current images. Push them first, or give --push."""
    from training_imgtool.app import config

    opt.check_output(output, f"--format {output} chooses the format")
    request = config.JobRequest(
        target=target,
        job_id=job_id,
        form=_format(output_format),
        hosts=hosts,
        machine=of_machine,
        allow_unknown=allow_unknown,
        push=push,
        output=None if opt.is_stdout(output) else output,
    )
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    with open_machine(progress) as machine:
        written = config.write_job_file(choice, request, machine)
    for line in written.notes:
        emit_note(line)
    if command:
        emit(written.command + "\n")
    elif request.output is None:
        emit(written.text)


def _format(name: str) -> Format:
    from training_imgtool.jobs.model import Format

    if name not in list(Format):
        raise UsageError(f"--format {name}: expected {', '.join(Format)}")
    return Format(name)
