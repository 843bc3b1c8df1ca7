"""`imgtool sign`: signs the images of a spec, their bill of materials and their provenance."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.errors import LocalFileError, UsageError
from training_imgtool.core.settings import Settings


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("sign")(sign)


def sign(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="A private key as cosign takes it, instead of an OIDC token."),
    ] = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Sign images that this machine cannot prove; the provenance says so.")
    ] = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Sign the images, their bill of materials and provenance."""
    from training_imgtool.commands.signatures import sign_images

    settings = _with_password(machine.settings(), key)
    with machine.progress(progress) as view:
        results = sign_images(
            spec,
            key,
            settings,
            view,
            values=opt.read_changes(changes),
            roles=tuple(roles or ()),
            registry=registry,
            locked=locked,
            unproven=unproven,
        )
    if as_json:
        rows = [
            {"role": str(row.role), "reference": str(row.digest), "signed": row.signed, "attestations": list(row.types)}
            for row in results
        ]
        emit_json({"ok": True, "images": rows})
    else:
        emit("".join(f"{row.role} {row.digest}\n" for row in results))


def _with_password(settings: Settings, key: str | None) -> Settings:
    """Asks for the password of a key in a file, once for all runs of cosign.

    Raises UsageError where nobody can type, LocalFileError for a file that is not there.
    """
    from training_imgtool.attest.cosign import is_key_reference

    if key is None or is_key_reference(key):
        return settings
    if not Path(key).is_file():
        raise LocalFileError(f"{key}: no such file")
    if "COSIGN_PASSWORD" in settings.environ:
        return settings
    if not sys.stdin.isatty():
        raise UsageError(
            f"{key}: its password is not known", hint="set COSIGN_PASSWORD; an empty one for a key without"
        )
    password = getpass.getpass(f"Password of {key}: ", stream=sys.stderr)
    return replace(settings, environ={**settings.environ, "COSIGN_PASSWORD": password})
