"""`imgtool push`: pushes the images that the registry lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import options as opt
from training_imgtool.cli.machine import open_machine, settings


def push(
    spec: opt.Spec = None,
    changes: opt.Changes = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    tag: opt.Tags = None,
    engine: opt.EngineName = "auto",
    builder: opt.Builder = None,
    secret: opt.Secrets = None,
    create_repository: Annotated[
        bool, typer.Option("--create-repository", help="Create the Artifact Registry repository if it is missing.")
    ] = False,
    locked: opt.Locked = False,
    no_check: opt.NoCheck = False,
    dry_run: opt.DryRun = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Push the images that the registry lacks. Check that the registry has the other images."""
    from training_imgtool.cli.build_images import build_and_print
    from training_imgtool.make.request import BuildOptions

    options = BuildOptions(
        roles=tuple(roles or ()),
        push=True,
        engine=engine,
        builder=builder,
        tags=tuple(tag or ()),
        create_repository=create_repository,
        check=not no_check,
    )
    choice = opt.read_choice(spec, changes, registry, locked=locked)
    machine = open_machine(progress, settings(tuple(secret or ())))
    build_and_print(choice, options, machine, dry_run=dry_run, as_json=as_json)
