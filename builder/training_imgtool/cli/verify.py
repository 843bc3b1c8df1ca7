"""`imgtool verify`: makes the images again, and compares the results with the images in the registry."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from training_imgtool.base.errors import VerificationError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit_error, emit_result


def verify(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    accept: opt.Accept = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Also import the framework and the trainer in a container.")
    ] = False,
    signature: Annotated[
        str | None,
        typer.Option("--signature", metavar="KEY|IDENTITY", help="Check that this key or identity signed the images."),
    ] = None,
    issuer: opt.Issuer = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Make the images again, and compare them with the pushed images."""
    from training_imgtool.app.images import verify_images
    from training_imgtool.oci.attest.cosign import Signatory
    from training_imgtool.verify import report
    from training_imgtool.verify.findings import read_accepted

    choice = opt.read_choice(spec, changes, registry, locked=locked)
    accepted = read_accepted(accept or ())
    with open_machine(progress) as machine:
        reports = verify_images(
            choice,
            machine,
            roles=tuple(roles or ()),
            signed_by=Signatory.read(signature, issuer),
            accept=accepted,
            smoke=smoke,
        )
    failures = report.list_failures(reports)
    text = report.as_text(reports, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    document = {"ok": not failures, "images": report.as_data(reports), "failures": [*failures]}
    emit_result(document, text, as_json=as_json)
    for line in failures:
        emit_error(f"Error: {line}\n")
    if failures:
        raise typer.Exit(VerificationError.exit_code)
