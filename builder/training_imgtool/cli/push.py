"""`imgtool push`: makes sure that the images of the current inputs are in the registry."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import making
from training_imgtool.cli import options as opt


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("push")(push)


def push(
    spec: opt.Spec = None,
    roles: opt.Roles = None,
    registry: opt.Registry = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="A further tag; with several roles, ROLE-TAG.")
    ] = None,
    engine: opt.EngineName = "auto",
    create_repository: Annotated[
        bool, typer.Option("--create-repository", help="Make a missing Artifact Registry repository first.")
    ] = False,
    locked: opt.Locked = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Put what is not there yet into the registry; what is there is only asked for."""
    making.push(
        spec=spec,
        roles=roles,
        registry=registry,
        tag=tag,
        engine=engine,
        create_repository=create_repository,
        locked=locked,
        progress=progress,
        as_json=as_json,
    )
