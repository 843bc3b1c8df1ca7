"""`imgtool submit`: submits the job to its service, but only once for the same inputs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit, emit_json, emit_note, emit_result

if TYPE_CHECKING:
    from training_imgtool.app.submit import Submission


def submit(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    target: opt.TargetName = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the job file to FILE [default: config.yaml]."),
    ] = None,
    registry: opt.Registry = None,
    job_id: opt.JobId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends; exit with 0 if it succeeded.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Submit nothing; print the job's state.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Submit nothing; follow the job's log.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Submit nothing; stop the job.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; write and submit nothing.")] = False,
    push: opt.Push = False,
    allow_unknown: opt.AllowUnknown = False,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Submit the job to its service, once per set of inputs."""
    from training_imgtool.app import submit as jobs
    from training_imgtool.app.config import JobRequest

    opt.check_output(output, "--json prints the result as JSON")
    _one_of("--status, --logs, --cancel, --wait, --dry-run", status, logs, cancel, wait, dry_run)
    _one_of("--logs, --cancel, --json", logs, cancel, as_json)
    request = JobRequest(
        target=target,
        job_id=job_id,
        allow_unknown=allow_unknown,
        push=push,
        output=output,
        dry_run=dry_run,
    )
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    with open_machine(progress) as machine:
        job, written = jobs.prepare_submission(choice, request, machine)
        for line in written.notes:
            emit_note(line)
        if dry_run:
            emit_result({"ok": True, "commands": job.commands().splitlines()}, job.commands(), as_json=as_json)
            return
        if status or logs or cancel:
            _ask(job, logs=logs, cancel=cancel, as_json=as_json)
            return
        done = jobs.submit_once(job, output or jobs.DEFAULT, machine.progress)
        if not as_json:
            said = "submitted" if done.now else f"submitted before, {done.state}; --job-id NAME submits another"
            emit(f"{done.job} {said}\nwatch: {done.watch}\nlogs: {done.logs}\nstop: {done.stop}\n")
        for line in done.others:
            emit_note(f"warning: another run submitted a second job of the same inputs; {line} stops it")
        if wait:
            job.wait()
    if as_json:
        emit_json({"ok": True, **asdict(done)})


def _one_of(names: str, *given: bool) -> None:
    if sum(given) > 1:
        raise UsageError(f"{names}: give only one of these options")


def _ask(job: Submission, *, logs: bool, cancel: bool, as_json: bool) -> None:
    """Does what --status, --logs or --cancel asks for."""
    if logs:
        job.show_logs()
    elif cancel:
        job.cancel()
    else:
        standing, lines = job.status()
        document = {"ok": True, "job": standing.name, "state": standing.state, "code": standing.code}
        emit_result({**document, "details": list(lines)}, "\n".join((*lines, "")), as_json=as_json)
