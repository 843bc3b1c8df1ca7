"""`imgtool sign`: verifies the images of a spec, and signs them with cosign."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine
from training_imgtool.cli.output import emit_note, emit_result


def sign(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="A private key for cosign, instead of an OIDC token."),
    ] = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    locked: opt.Locked = False,
    accept: opt.Accept = None,
    unproven: Annotated[bool, typer.Option("--unproven", help="Sign the images without verifying them first.")] = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Verify the images, and sign them with cosign."""
    from training_imgtool.app.signatures import find_proven
    from training_imgtool.verify.findings import read_accepted

    choice = opt.read_choice(spec, changes, registry, locked=locked)
    with open_machine(progress) as machine:
        images, sign_images, accepted = find_proven(
            choice, key, machine, roles=tuple(roles or ()), unproven=unproven, accept=read_accepted(accept or ())
        )
    for line in accepted:
        emit_note(f"warning: accepted: {line}")
    sign_images(tuple(dict.fromkeys(image for _, image in images)))  # with the terminal: cosign may ask for a password
    named = dict(images)  # of an image for several platforms, its index
    rows = [{"role": str(role), "reference": str(ref)} for role, ref in named.items()]
    text = "".join(f"{role} {image}\n" for role, image in named.items())
    emit_result({"ok": True, "images": rows}, text, as_json=as_json)
