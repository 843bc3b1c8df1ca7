"""`imgtool build`: makes the images of the current inputs."""

from __future__ import annotations

from typing import Annotated

import typer

from training_imgtool.cli import making
from training_imgtool.cli import options as opt


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("build")(build)


def build(
    spec: opt.Spec = None,
    roles: opt.Roles = None,
    push: Annotated[bool, typer.Option("--push", help="Into the registry, verified there.")] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Into the Docker Engine; what happens without --push too.")
    ] = False,
    output: Annotated[str | None, typer.Option("--output", metavar="oci:DIR", help="Into an OCI layout.")] = None,
    registry: opt.Registry = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="A further tag; with several roles, ROLE-TAG.")
    ] = None,
    engine: opt.EngineName = "auto",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every step again.")] = False,
    locked: opt.Locked = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Build the images of the spec's roles: into the engine, or with --push into the registry."""
    making.build(
        spec=spec,
        roles=roles,
        push=push,
        load=load,
        output=output,
        registry=registry,
        tag=tag,
        engine=engine,
        no_cache=no_cache,
        locked=locked,
        dry_run=dry_run,
        progress=progress,
        as_json=as_json,
    )
