"""`imgtool verify`: compares the built images with the lock, the spec and the build context."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_error, emit_json
from training_imgtool.core.errors import UsageError, VerificationError


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("verify")(verify)


def verify(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="auto, docker, or direct (read the registry, run nothing).",
            autocompletion=lambda: ["auto", "docker", "direct"],
        ),
    ] = "auto",
    signature: Annotated[
        str | None,
        typer.Option("--signature", metavar="KEY|IDENTITY", help="Check that this key or identity signed."),
    ] = None,
    issuer: opt.Issuer = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Check that the images contain what the lock pins, and no secret."""
    from training_imgtool.commands.images import verify_images
    from training_imgtool.pipeline.request import SpecChoice
    from training_imgtool.verify import report

    values = opt.read_changes(changes)
    _check_engine(engine)
    wanted = tuple(roles or ())
    settings = machine.settings()
    with machine.progress(progress) as view:
        reports = verify_images(
            SpecChoice(path=spec, values=values),
            settings,
            view,
            roles=wanted,
            registry=registry,
            engine=engine,
            signed_by=machine.signatory(signature, issuer),
            locked=locked,
        )
    wrong, unproven = report.list_mismatches(reports), report.list_unproven(reports)
    if as_json:
        images = report.as_data(reports)
        emit_json({"ok": not (wrong or unproven), "images": images, "mismatches": [*wrong], "unproven": [*unproven]})
    else:
        emit(report.as_text(reports, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
    for line in (*wrong, *unproven):
        emit_error(f"Error: {line}\n")
    if wrong or unproven:
        if not wrong:
            emit_error("Try: what this machine lacks to make the image again, such as its Python, or verify.ignore\n")
        raise typer.Exit(VerificationError.exit_code)


def _check_engine(engine: str) -> None:
    from training_imgtool.verify.session import ENGINES

    if engine not in ENGINES:
        raise UsageError(f"--engine {engine}: expected {', '.join(ENGINES)}")
