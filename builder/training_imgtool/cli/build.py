"""`imgtool build`: makes the images of a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from training_imgtool.build import build as building
from training_imgtool.build.request import BuildOptions, BuildResult
from training_imgtool.cli import machine
from training_imgtool.cli import options as opt
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("build")(build)


def build(
    spec: opt.Spec = None,
    roles: opt.Roles = None,
    push: Annotated[bool, typer.Option("--push", help="Push the images and verify them in the registry.")] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Load the images into the Docker Engine (the default without --push).")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="oci:DIR", help="Write the images into an OCI layout.")
    ] = None,
    registry: opt.Registry = None,
    tag: opt.Tags = None,
    engine: opt.EngineName = "auto",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every step again; use no stored result.")] = False,
    locked: opt.Locked = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what the build would do; change nothing.")] = False,
    progress: opt.ProgressMode = "auto",
    as_json: opt.Json = False,
) -> None:
    """Build the images of a spec, one per role."""
    if sum((push, load, output is not None)) > 1:
        raise UsageError("--push, --load and --output name three destinations", hint="give one of them")
    options = BuildOptions(
        roles=tuple(roles or ()),
        push=push,
        layout=_layout(output),
        engine=engine,
        tags=tuple(tag or ()),
        no_cache=no_cache,
    )
    carry_out = _foresee if dry_run else build_and_print
    carry_out(spec, options, registry=registry, locked=locked, progress=progress, as_json=as_json)


def _layout(output: str | None) -> Path | None:
    if output is None:
        return None
    kind, _, folder = output.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(f"--output {output}: expected oci:DIR", hint="for a registry: --push; for an engine: --load")
    return Path(folder)


def build_and_print(
    spec: Path | None, options: BuildOptions, *, registry: str | None, locked: bool, progress: str, as_json: bool
) -> None:
    """Builds the images and prints one line per role; `imgtool push` calls this with `options.push`."""
    from training_imgtool.build.inputs import open_spec, prepare
    from training_imgtool.build.request import BuildRun

    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = prepare(open_spec(spec), settings, view, registry=registry, locked=locked)
        results = building.build(BuildRun(inputs=inputs, options=options, settings=settings, progress=view))
    if as_json:
        emit_json({"ok": True, "images": [_as_data(result) for result in results]})
    else:
        emit("".join(f"{result.role} {result.reference}\n" for result in results))


def _as_data(result: BuildResult) -> dict[str, Any]:
    """A result as plain data."""
    return {
        "role": str(result.role),
        "outcome": str(result.outcome),
        "reference": result.reference,
        "digest": result.digest.digest if result.digest else None,
        "tag": str(result.tag) if result.tag else None,
        "key": result.key,
        "image_id": result.image_id,
        "seconds": round(result.seconds, 3),
    }


def _foresee(
    spec: Path | None, options: BuildOptions, *, registry: str | None, locked: bool, progress: str, as_json: bool
) -> None:
    """Says what a build would find and make; asks the registry, changes nothing."""
    from training_imgtool.build.inputs import open_spec, prepare
    from training_imgtool.build.request import BuildRun

    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = prepare(open_spec(spec), settings, view, registry=registry, locked=locked, write=False)
        foreseen = building.foresee(BuildRun(inputs=inputs, options=options, settings=settings, progress=view))
    tags = {image.role: str(image.tag or image.key[:32]) for image in inputs.images}
    if as_json:
        emit_json({"ok": True, "images": [{"role": r, "would": what, "tag": tags[r]} for r, what in foreseen.items()]})
    else:
        emit("".join(f"{role} {what} {tags[role]}\n" for role, what in foreseen.items()))
