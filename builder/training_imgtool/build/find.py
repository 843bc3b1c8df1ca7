"""Finds the images of the current inputs in a registry, by content key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from training_imgtool.build.builders import plan_role
from training_imgtool.build.inputs import Inputs, RoleImage
from training_imgtool.build.request import BuildResult, BuildRun
from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.core.progress import Done, Outcome, Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.direct.registry.memory import RepositoryMemory, tag_of_stage
from training_imgtool.registry.connect import Registries
from training_imgtool.spec.model import Role

Find = Callable[[tuple[RoleImage, ...]], Mapping[Role, BuildResult]]


def find_images(
    inputs: Inputs,
    wanted: tuple[RoleImage, ...],
    registries: Registries,
    progress: Progress,
    find: Callable[[Tag], Digest | None] | None = None,
) -> dict[Role, Digest | None]:
    """Finds each image by its tag, side by side, with `find` or with one HEAD; roles without an image have None."""
    repository = inputs.repository

    def head(tag: Tag) -> Digest | None:
        digest = registries.at(repository).head(tag)
        return repository.digest(digest) if digest else None

    def ask(image: RoleImage) -> Digest | None:
        started = time.monotonic()
        digest = (find or head)(image.registry_tag)
        if digest is not None:
            progress(Done(image.role, Outcome.FOUND, str(image.tag), time.monotonic() - started))
        return digest

    return run_all({image.role: partial(ask, image) for image in wanted})


def require_images(inputs: Inputs, registries: Registries, progress: Progress) -> Mapping[Role, Digest]:
    """Returns every role's digest; raises InputError that names the missing images and the command that makes them."""
    digests = find_images(inputs, inputs.images, registries, progress)
    missing = [image for image in inputs.images if digests[image.role] is None]
    if missing:
        names = ", ".join(image.role for image in missing)
        raise InputError(
            f"{len(missing)} of {len(digests)} images of the current inputs are not in the registry: {names}",
            hint=f"imgtool push {inputs.spec_file.path}",
            details=tuple(f"{image.role}: {image.tag}" for image in missing),
        )
    return {role: digest for role, digest in digests.items() if digest is not None}


def presume_missing(
    find: Find, run: BuildRun, memory: RepositoryMemory, ask: Callable[[tuple[RoleImage, ...]], None]
) -> Find:
    """Decorates a find step: leaves out requests, or their answers, where images are most likely missing.

    This machine knows the stage below the roles and has never seen their tags: `ask` sends the requests, and nobody
    waits for the answers before something is uploaded. That saves a round trip for every change of code.

    This machine does not know the stage: the step asks for one role. When that is missing, the others are presumed
    missing too, since the request that begins an upload asks for the blob as well. That saves a request per role.
    """

    def presume(images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        first, others = images[:1], images[1:]
        if run.options.only_engine or run.options.create_repository:
            return find(images)
        if _stage_is_known(run, first[0], memory):
            if any(memory.has_tag(image.registry_tag.name) for image in images):
                return find(images)
            ask(images)
            return {}
        results = find(first)
        return results if not results and others and _all_direct(run, images) else {**results, **find(others)}

    return presume


def _stage_is_known(run: BuildRun, image: RoleImage, memory: RepositoryMemory) -> bool:
    """Whether this machine remembers the image that the role's own stage starts from."""
    label = image.dockerfile.stages[-1].base
    if label not in image.keys:
        return True
    return memory.has_stage(tag_of_stage(run.inputs.repository, label, image.keys[label]))


def _all_direct(run: BuildRun, images: tuple[RoleImage, ...]) -> bool:
    try:
        for image in images:
            plan_role(run.inputs, image)
    except NeedsEngineError:
        return False
    return True
