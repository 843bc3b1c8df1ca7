"""What `imgtool build` and `imgtool push` do, once their options are read.

Each function takes its verb's parameters by name, as `cli.build` and `cli.push` declare them for the
command-line library and `cli.plain` reads them without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.cli import machine
from training_imgtool.cli.output import emit, emit_json
from training_imgtool.core.errors import UsageError

if TYPE_CHECKING:
    from training_imgtool.build.request import BuildOptions, BuildResult
    from training_imgtool.spec.model import Role


def push(
    *,
    spec: Path | None,
    roles: list[Role] | None,
    registry: str | None,
    tag: list[str] | None,
    engine: str,
    create_repository: bool,
    locked: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Puts what is not there yet into the registry and prints one line per role."""
    from training_imgtool.build.request import BuildOptions

    options = BuildOptions(
        roles=tuple(roles or ()), push=True, engine=engine, tags=tuple(tag or ()), create_repository=create_repository
    )
    _run(spec, options, registry=registry, locked=locked, progress=progress, as_json=as_json)


def build(
    *,
    spec: Path | None,
    roles: list[Role] | None,
    push: bool,
    load: bool,
    output: str | None,
    registry: str | None,
    tag: list[str] | None,
    engine: str,
    no_cache: bool,
    locked: bool,
    dry_run: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Builds and prints one line per role, or with `dry_run` says what would happen.

    Raises UsageError for several places at once and for an `output` that is not oci:DIR.
    """
    from training_imgtool.build.request import BuildOptions

    if sum((push, load, output is not None)) > 1:
        raise UsageError("--push, --load and --output are three places: give one")
    options = BuildOptions(
        roles=tuple(roles or ()),
        push=push,
        layout=_layout(output),
        engine=engine,
        tags=tuple(tag or ()),
        no_cache=no_cache,
    )
    carry_out = _foresee if dry_run else _run
    carry_out(spec, options, registry=registry, locked=locked, progress=progress, as_json=as_json)


def _layout(output: str | None) -> Path | None:
    if output is None:
        return None
    kind, _, folder = output.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(f"--output {output}: expected oci:DIR", hint="for a registry: --push; for an engine: --load")
    return Path(folder)


def _run(
    spec: Path | None, options: BuildOptions, *, registry: str | None, locked: bool, progress: str, as_json: bool
) -> None:
    """Builds and prints one line per role; `push` is the same with `options.push`."""
    from training_imgtool.build import build
    from training_imgtool.build.inputs import open_spec, prepare
    from training_imgtool.build.request import BuildRun

    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = prepare(open_spec(spec, settings), settings, view, registry=registry, locked=locked)
        results = build.build(BuildRun(inputs=inputs, options=options, settings=settings, progress=view))
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
    from training_imgtool.build import build
    from training_imgtool.build.inputs import open_spec, prepare
    from training_imgtool.build.request import BuildRun

    settings = machine.settings()
    with machine.progress(progress) as view:
        inputs = prepare(open_spec(spec, settings), settings, view, registry=registry, locked=locked, write=False)
        foreseen: dict[Role, str] = build.foresee(
            BuildRun(inputs=inputs, options=options, settings=settings, progress=view)
        )
    tags = {image.role: str(image.tag or image.key[:32]) for image in inputs.images}
    if as_json:
        emit_json({"ok": True, "images": [{"role": r, "would": what, "tag": tags[r]} for r, what in foreseen.items()]})
    else:
        emit("".join(f"{role} {what} {tags[role]}\n" for role, what in foreseen.items()))
