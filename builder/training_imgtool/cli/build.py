"""`imgtool build`: makes the images of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_imgtool.base.errors import UsageError
from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine, settings


def build(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    roles: opt.Roles = None,
    push: Annotated[bool, typer.Option("--push", help="Push the images to the registry.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="oci:DIR", help="Write the images to DIR as an OCI layout.")
    ] = None,
    registry: opt.Registry = None,
    tag: opt.Tags = None,
    engine: opt.EngineName = "auto",
    builder: opt.Builder = None,
    secret: opt.Secrets = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every step; use no stored results.")] = False,
    locked: opt.Locked = False,
    no_check: opt.NoCheck = False,
    dry_run: opt.DryRun = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Build the images of a spec. Roles with the same inputs share one image."""
    from training_imgtool.cli.build_images import build_and_print
    from training_imgtool.make.request import BuildOptions

    if push and output is not None:
        raise UsageError("--push and --output exclude each other", hint="give one of them")
    options = BuildOptions(
        roles=tuple(roles or ()),
        push=push,
        layout=_layout(output),
        engine=engine,
        builder=builder,
        tags=tuple(tag or ()),
        no_cache=no_cache,
        check=not no_check,
    )
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    machine = open_machine(progress, settings(tuple(secret or ())))
    build_and_print(choice, options, machine, dry_run=dry_run, as_json=as_json)


def _layout(output: str | None) -> Path | None:
    if output is None:
        return None
    kind, _, folder = output.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(
            f"--output {output}: expected oci:DIR",
            hint="use --push to send the images to a registry, or neither option to load them into the engine",
        )
    return Path(folder)
