"""`imgtool verify`: the built images hold what the lock and the spec say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from builder.cli import machine
from builder.cli import options as opt
from builder.cli.output import complain, emit, emit_json, note
from builder.errors import VerificationError


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("verify")(verify)


def verify(
    spec: opt.Spec = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="auto, docker, or direct (read the registry, run nothing).")
    ] = "auto",
    sbom: Annotated[
        Path | None,
        typer.Option("--sbom", metavar="FILE", help="Write a CycloneDX SBOM of wheels and Debian packages."),
    ] = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Check that the images hold what was pinned: versions, libraries, trainer, settings, no secret."""
    from builder.inputs import open_spec, prepare
    from builder.verify import report
    from builder.verify.sbom import write_sbom
    from builder.verify.session import Asked
    from builder.verify.session import verify as look

    settings = machine.settings()
    with machine.progress(progress) as view:
        if sbom is not None:
            from builder.files import check_writable

            check_writable(sbom)
        inputs = prepare(open_spec(spec, settings), settings, view, registry=registry, locked=locked)
        asked = Asked(inputs=inputs, roles=tuple(roles or ()), engine=engine, settings=settings, progress=view)
        reports = look(asked)
    wrong = report.mismatches(reports)
    if as_json:
        emit_json({"ok": not wrong, "images": report.as_data(reports), "mismatches": list(wrong)})
    else:
        emit(report.as_text(reports))
    for line in wrong:
        complain(f"Error: {line}\n")
    if wrong:
        if sbom is not None:
            note(f"{sbom} was not written: the images are not what the lock says")
        raise typer.Exit(VerificationError.exit_code)
    if sbom is not None:
        for line in write_sbom(sbom, inputs.plan.name, reports):
            note(line)
