"""`imgtool sign`: signs the images of a spec, their bill of materials and their provenance."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("sign")(sign)


def sign(
    spec: opt.Spec = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="A private key, instead of an OIDC token."),
    ] = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Sign the images, their bill of materials and provenance."""
    from training_imgtool.commands.signatures import open_signer, sign_images

    settings = machine.settings()

    def password() -> str:
        return _password(key, settings.environ)

    with machine.progress(progress) as view, open_signer(key, password, settings) as signer:
        results = sign_images(spec, signer, settings, view, roles=tuple(roles or ()), registry=registry, locked=locked)
    if as_json:
        rows = [
            {"role": str(row.role), "reference": str(row.digest), "signed": row.signed, "attestations": list(row.types)}
            for row in results
        ]
        emit_json({"ok": True, "images": rows})
    else:
        emit("".join(f"{row.role} {row.digest}\n" for row in results))


def _password(key: Path | None, environ: Mapping[str, str]) -> str:
    """The key's password: of the environment, else typed; raises UsageError where nobody can type one."""
    for name in ("IMGTOOL_KEY_PASSWORD", "COSIGN_PASSWORD"):
        if name in environ:
            return environ[name]
    if not sys.stdin.isatty():
        raise UsageError(f"{key} is encrypted", hint="set IMGTOOL_KEY_PASSWORD or COSIGN_PASSWORD")
    return getpass.getpass(f"Password of {key}: ", stream=sys.stderr)
