"""The verbs as functions: the only place where inputs, engines, the registry and job files come together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import InputError, UsageError, VerificationError
from builder.inputs import Inputs, RoleImage, WheelContext
from builder.parallel import run_all
from builder.progress import Done, Note, Outcome, Progress, Step
from builder.reference import Digest, Tag
from builder.settings import Settings
from builder.spec import Role
from builder.stages import Recipe, StageRunner

if TYPE_CHECKING:
    from builder.engines import Engine
    from builder.registry.client import Registries


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What `build` and `push` were asked for."""

    roles: tuple[Role, ...] = ()
    push: bool = False
    engine: str = "auto"
    tags: tuple[str, ...] = ()
    no_cache: bool = False
    create_repository: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One role's image: where it is and how it came to be."""

    role: Role
    outcome: Outcome
    key: str
    tag: Tag | None
    digest: Digest | None  # None when the image is only in an engine's store
    image_id: str | None
    seconds: float

    @property
    def reference(self) -> str:
        """What names the image: its digest, else its ID in the engine."""
        return str(self.digest or self.image_id)


def build(inputs: Inputs, options: BuildOptions, settings: Settings, progress: Progress) -> tuple[Built, ...]:
    """Makes sure that the selected roles' images exist, in the registry with `push`, else in the engine.

    Raises what the steps raise; the tags that the user named move only when every role is up.
    """
    wanted = inputs.selected(options.roles)
    if not options.push:
        with _engine(options.engine, settings) as engine:
            return _build_locally(inputs, wanted, engine, options, settings, progress)
    from builder.registry.client import connect

    registries = connect(settings, progress)
    found = find_images(inputs, wanted, registries, progress)
    missing = tuple(image for image in wanted if found[image.role] is None)
    made = _make_and_push(inputs, missing, registries, options, settings, progress) if missing else {}
    results = tuple(made.get(image.role) or _found(inputs, image, found[image.role]) for image in wanted)
    for name in options.tags:
        for result in results:
            _name(result, name, wanted, registries, progress)
    return results


def find_images(
    inputs: Inputs, wanted: tuple[RoleImage, ...], registries: Registries, progress: Progress
) -> dict[Role, Digest | None]:
    """Asks the registry for each image by its content key: one HEAD per role, side by side."""
    repository = inputs.repository

    def ask(image: RoleImage) -> Digest | None:
        started = time.monotonic()
        digest = registries.head(_tag(image))
        if digest is not None:
            progress(Done(image.role, Outcome.FOUND, str(_tag(image)), time.monotonic() - started))
            return repository.digest(digest)
        return None

    return run_all({image.role: partial(ask, image) for image in wanted})


def foresee(inputs: Inputs, options: BuildOptions, settings: Settings, progress: Progress) -> dict[Role, str]:
    """What `build` would do with each role, by asking only: `found`, or `build` with where it would go."""
    wanted = inputs.selected(options.roles)
    if not options.push:
        with _engine(options.engine, settings) as engine:
            return {image.role: "found" if engine.image_id(image.key) else "build" for image in wanted}
    from builder.registry.client import connect

    found = find_images(inputs, wanted, connect(settings, progress), progress)
    return {role: "build and push" if digest is None else "found" for role, digest in found.items()}


def export(
    inputs: Inputs, images: tuple[RoleImage, ...], output: Path, settings: Settings, progress: Progress
) -> None:
    """Writes the Dockerfiles, their context and a `docker-bake.json` to `output`, wheels included."""
    from builder.bake import write_export
    from builder.wheels import WheelStore

    files = WheelContext(inputs, WheelStore(settings), progress).files(images)
    write_export(output, {image.role: (image.text, image.tag) for image in images}, files, inputs.plan.platform)


def require_images(inputs: Inputs, registries: Registries, progress: Progress) -> Mapping[Role, Digest]:
    """Every role's digest; raises InputError that names what is not in the registry and how to get it there."""
    found = find_images(inputs, inputs.images, registries, progress)
    missing = [role for role, digest in found.items() if digest is None]
    if missing:
        tags = tuple(f"{image.role}: {image.tag}" for image in inputs.images if image.role in missing)
        error = InputError(
            f"{len(missing)} of {len(found)} images for the current inputs are not in the registry: {', '.join(missing)}",
            hint=f"imgtool push {inputs.spec_file.path}",
        )
        error.details = tags
        raise error
    return {role: digest for role, digest in found.items() if digest is not None}


def _tag(image: RoleImage) -> Tag:
    if image.tag is None:
        raise UsageError("no registry", hint="give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY")
    return image.tag


def _found(inputs: Inputs, image: RoleImage, digest: Digest | None) -> Built:
    return Built(
        role=image.role, outcome=Outcome.FOUND, key=image.key, tag=image.tag, digest=digest, image_id=None, seconds=0.0
    )


def _build_locally(
    inputs: Inputs,
    wanted: tuple[RoleImage, ...],
    engine: Engine,
    options: BuildOptions,
    settings: Settings,
    progress: Progress,
) -> tuple[Built, ...]:
    started = time.monotonic()
    present = {image.role: None if options.no_cache else engine.image_id(image.key) for image in wanted}
    for image in wanted:
        if present[image.role]:
            progress(Done(image.role, Outcome.FOUND, f"{image.key[:12]} in the engine"))
    missing = tuple(image for image in wanted if not present[image.role])
    images = _run_stages(inputs, missing, engine, options, settings, progress)
    for image in wanted:
        if image.tag is not None:
            engine.tag(present[image.role] or images[image.role], image.tag)
    return tuple(
        Built(
            role=image.role,
            outcome=Outcome.FOUND if present[image.role] else Outcome.BUILT,
            key=image.key,
            tag=image.tag,
            digest=None,
            image_id=present[image.role] or images[image.role],
            seconds=time.monotonic() - started,
        )
        for image in wanted
    )


def _run_stages(
    inputs: Inputs,
    wanted: tuple[RoleImage, ...],
    engine: Engine,
    options: BuildOptions,
    settings: Settings,
    progress: Progress,
) -> dict[str, str]:
    if not wanted:
        return {}
    from builder.registry.credentials import find_login
    from builder.wheels import WheelStore

    runner = StageRunner(
        engine,
        WheelContext(inputs, WheelStore(settings), progress),
        platform=inputs.plan.platform,
        login_for=lambda host: find_login(host, settings),
        progress=progress,
        no_cache=options.no_cache,
    )
    return runner.run(tuple(recipe(image) for image in wanted))


def recipe(image: RoleImage) -> Recipe:
    """What an engine needs to make the image."""
    target = image.dockerfile.stages[-1].name or ""
    variant = image.plan.locked.variant.name
    shared = {name: f"{name} {variant}" for name in image.keys if name != target}
    return Recipe(subject=image.role, dockerfile=image.dockerfile, target=target, keys=image.keys, shared=shared)


def _make_and_push(
    inputs: Inputs,
    missing: tuple[RoleImage, ...],
    registries: Registries,
    options: BuildOptions,
    settings: Settings,
    progress: Progress,
) -> dict[Role, Built]:
    started = time.monotonic()
    if options.create_repository:
        from builder.registry.google import create_repository

        create_repository(inputs.repository, settings, progress)
    with _engine(options.engine, settings) as engine:
        images = _run_stages(inputs, missing, engine, options, settings, progress)
        digests = run_all(
            {
                image.role: partial(_push, engine, images[image.role], image, registries, settings, progress)
                for image in missing
            }
        )
    return {
        image.role: Built(
            role=image.role,
            outcome=Outcome.BUILT,
            key=image.key,
            tag=image.tag,
            digest=digests[image.role],
            image_id=images[image.role],
            seconds=time.monotonic() - started,
        )
        for image in missing
    }


def _push(
    engine: Engine,
    image_id: str,
    image: RoleImage,
    registries: Registries,
    settings: Settings,
    progress: Progress,
) -> Digest:
    from builder.registry.credentials import find_login

    started = time.monotonic()
    tag = _tag(image)
    engine.tag(image_id, tag)
    progress(Step(image.role, f"pushing {tag}"))
    pushed = tag.repository.digest(engine.push(tag, find_login(tag.repository.registry, settings), progress))
    verify_pushed(pushed, registries)
    progress(Done(image.role, Outcome.PUSHED, str(pushed), time.monotonic() - started))
    return pushed


def verify_pushed(pushed: Digest, registries: Registries) -> None:
    """A push is done when the registry answers for the digest; raises VerificationError when it does not."""
    if registries.head(pushed) != pushed.digest:
        raise VerificationError(
            f"{pushed}: the push was reported as done, but the registry does not have it",
            hint="run the same command again; if it stays so, the registry loses what it accepts",
        )


def _name(
    result: Built, name: str, wanted: tuple[RoleImage, ...], registries: Registries, progress: Progress
) -> None:
    """Gives an image a further tag; with several roles the role comes first, as in `worker-NAME`."""
    if result.digest is None:
        raise UsageError("--tag names images in the registry", hint="add --push")
    tag = result.digest.repository.tag(name if len(wanted) == 1 else f"{result.role}-{name}")
    manifest = registries.manifest(result.digest)
    registries.put_manifest(tag, manifest.media_type, manifest.body)
    progress(Note(f"{result.role}: tagged {tag}"))


class _engine:  # noqa: N801 - used like the function it is
    """Connects to an engine for the length of a `with`, and stops what it still does at its end."""

    def __init__(self, name: str, settings: Settings) -> None:
        if name not in {"auto", "docker"}:
            raise UsageError(f"--engine {name}: expected auto or docker")
        from builder.engines.docker import connect

        self._engine: Engine = connect(settings)

    def __enter__(self) -> Engine:
        return self._engine

    def __exit__(self, *exception: object) -> None:
        self._engine.close()


