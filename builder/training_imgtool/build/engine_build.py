"""The road through an engine: stages are built there, and the images pushed from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.build.inputs import RoleImage, WheelContext
from training_imgtool.build.request import BuildResult, BuildRun, tag_of
from training_imgtool.core.errors import VerificationError
from training_imgtool.core.progress import Done, Outcome, Progress, Step
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import run_all
from training_imgtool.engines.stages import Recipe, StageRunner
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.engines import Engine
    from training_imgtool.registry.connect import Registries


@contextmanager
def open_engine(settings: Settings) -> Iterator[Engine]:
    """The Docker Engine; what it still does is stopped at the end. Raises EngineUnavailableError."""
    from training_imgtool.engines.docker.client import connect

    engine = connect(settings)
    try:
        yield engine
    finally:
        engine.close()


def build_locally(work: BuildRun, engine: Engine) -> tuple[BuildResult, ...]:
    """Builds what the engine does not have, in its own store."""
    started = time.monotonic()
    wanted = work.wanted
    present = {image.role: None if work.options.no_cache else engine.image_id(image.key) for image in wanted}
    for image in wanted:
        if present[image.role]:
            work.progress(Done(image.role, Outcome.FOUND, f"{image.key[:12]} in the engine"))
    made = run_stages(work, tuple(image for image in wanted if not present[image.role]), engine)
    ids = {image.role: present[image.role] or made[image.role] for image in wanted}
    for image in wanted:
        if image.tag is not None:
            engine.tag(ids[image.role], image.tag)
    seconds = time.monotonic() - started
    return tuple(
        BuildResult(
            role=image.role,
            outcome=Outcome.FOUND if present[image.role] else Outcome.BUILT,
            key=image.key,
            tag=image.tag,
            image_id=ids[image.role],
            seconds=seconds,
        )
        for image in wanted
    )


def make(
    work: BuildRun, missing: tuple[RoleImage, ...], engine: Engine, registries: Registries
) -> dict[Role, BuildResult]:
    """Builds images and pushes them; each is done when the registry answers for its digest."""
    started = time.monotonic()
    images = run_stages(work, missing, engine)
    digests = run_all(
        {image.role: partial(push, work, engine, images[image.role], image, registries) for image in missing}
    )
    return {
        image.role: BuildResult(
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


def run_stages(work: BuildRun, wanted: tuple[RoleImage, ...], engine: Engine) -> dict[str, str]:
    """Builds the images' last stages; image IDs by role."""
    if not wanted:
        return {}
    return stage_runner(work, engine).run(tuple(recipe(image) for image in wanted))


def stage_runner(work: BuildRun, engine: Engine) -> StageRunner:
    """A runner of this run's stages."""
    from training_imgtool.registry.connect import connect
    from training_imgtool.wheels.store import WheelStore

    return StageRunner(
        engine,
        WheelContext(work.inputs, WheelStore(work.settings), work.progress),
        platform=work.inputs.plan.platform,
        login_for=lambda host: connect(work.settings).login(host).login,
        progress=work.progress,
        no_cache=work.options.no_cache,
    )


def recipe(image: RoleImage) -> Recipe:
    """What an engine needs to make the image."""
    target = image.dockerfile.stages[-1].label
    variant = image.plan.locked.variant.name
    shared = {name: f"{name} {variant}" for name in image.keys if name != target}
    return Recipe(subject=image.role, dockerfile=image.dockerfile, target=target, keys=image.keys, shared=shared)


def push(work: BuildRun, engine: Engine, image_id: str, image: RoleImage, registries: Registries) -> Digest:
    """Pushes one image from the engine under its tag, and asks the registry for it."""
    started = time.monotonic()
    tag = tag_of(image)
    engine.tag(image_id, tag)
    work.progress(Step(image.role, f"pushing {tag}"))
    pushed = push_tag(engine, image_id, tag, registries, work.progress, subject=image.role)
    work.progress(Done(image.role, Outcome.PUSHED, str(pushed), time.monotonic() - started))
    return pushed


def push_stage(
    work: BuildRun, engine: Engine, image: RoleImage, *, label: str, tag: Tag, registries: Registries
) -> None:
    """Builds one stage and leaves it in the registry under its key, for the direct builder to append to."""
    shared = recipe(image)
    one = replace(shared, subject=shared.shared[label], target=label)
    made = stage_runner(work, engine).run((one,))[one.subject]
    started = time.monotonic()
    engine.tag(made, tag)
    work.progress(Step(one.subject, f"pushing {tag}"))
    pushed = push_tag(engine, made, tag, registries, work.progress, subject=one.subject)
    work.progress(Done(one.subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))


def push_tag(
    engine: Engine, image_id: str, tag: Tag, registries: Registries, progress: Progress, *, subject: str
) -> Digest:
    """Pushes an image that has the tag already; its digest, once the registry has answered for it.

    Where the engine does not say what it pushed, the registry is asked what the tag names now: it must be that image.
    Raises what pushing and asking raise, and VerificationError when something else is there.
    """
    login = registries.login(tag.repository.registry).login
    named = engine.push(tag, login, progress, subject=subject)
    registry = registries.at(tag.repository)
    if named is not None:
        pushed = tag.repository.digest(named)
        if registry.head(pushed) != pushed.digest:
            raise lost(pushed)
        return pushed
    manifest = registry.manifest(tag)
    if manifest.is_index or manifest.config.digest != image_id:
        raise VerificationError(
            f"{tag}: the engine ended the push without naming a digest, and what is there is not the image "
            f"{image_id[:19]} that was pushed",
            hint="run the same command again",
        )
    return tag.repository.digest(manifest.digest)


def lost(pushed: Digest | Tag) -> VerificationError:
    """The error for what was pushed and is not there."""
    return VerificationError(
        f"{pushed}: the push was reported as done, but the registry does not have it",
        hint="run the same command again; if it stays so, the registry loses what it accepts",
    )
