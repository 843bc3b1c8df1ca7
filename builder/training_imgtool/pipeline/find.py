"""Finds the images of the current inputs in a registry, by content key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from training_imgtool.core.errors import ImageMissingError
from training_imgtool.core.progress import Done, Note, Outcome, Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import BuildResult, BuildRun, name_for_role
from training_imgtool.registry.connect import Registries
from training_imgtool.spec.model import Role


def find_images(images: tuple[RoleImage, ...], registries: Registries, progress: Progress) -> dict[Role, Digest | None]:
    """Finds each image by its tag, side by side; roles without an image have None."""

    def ask(image: RoleImage) -> Digest | None:
        started = time.monotonic()
        digest = find_image(registries, image.registry_tag)
        if digest is not None:
            progress(Done(image.role, Outcome.FOUND, str(image.tag), time.monotonic() - started))
        return digest

    return run_all({image.role: partial(ask, image) for image in images})


def find_image(registries: Registries, tag: Tag) -> Digest | None:
    """Returns the digest that a registry has under a tag, once the manifest of that digest was read from it.

    What a HEAD request says of a tag may be a proxy's memory.
    """
    registry = registries.at(tag.repository)
    digest = registry.head(tag)
    image = tag.repository.digest(digest) if digest else None
    return image if image and registry.find_manifest(image) else None


def require_images(
    inputs: Inputs, registries: Registries, progress: Progress, wanted: tuple[RoleImage, ...] | None = None
) -> Mapping[Role, Digest]:
    """Returns the digest of every role, or of those that are `wanted`.

    Raises ImageMissingError that names the missing images and the command that makes them.
    """
    wanted = inputs.images if wanted is None else wanted
    digests = find_images(wanted, registries, progress)
    missing = [image for image in wanted if digests[image.role] is None]
    if missing:
        names = ", ".join(image.role for image in missing)
        raise ImageMissingError(
            f"{len(missing)} of {len(digests)} images of the current spec, lock and code are not in the registry:"
            f" {names}",
            hint=push_hint(inputs),
            details=tuple(f"{image.role}: {image.tag}" for image in missing),
        )
    return {role: digest for role, digest in digests.items() if digest is not None}


def push_hint(inputs: Inputs) -> str:
    """Says what to do where the images of the current inputs are missing."""
    return f"imgtool push {inputs.spec_file.path}; imgtool show --why names what changed since this machine's last push"


def find_results(run: BuildRun, registries: Registries) -> Mapping[Role, BuildResult]:
    """Returns the images of a run that the spec's repository holds under the tags of their keys.

    None with `--no-cache`.
    """
    if run.options.no_cache:
        return {}
    digests = find_images(run.wanted, registries, run.progress)
    return {
        image.role: BuildResult.for_image(image, Outcome.FOUND, digest)
        for image in run.wanted
        if (digest := digests[image.role]) is not None
    }


def name_results(run: BuildRun, registries: Registries, results: Sequence[BuildResult]) -> None:
    """Moves the tags that the user named: NAME, or ROLE-NAME when the run has several roles."""
    repository = run.inputs.repository
    registry = registries.at(repository)

    def give(result: BuildResult, name: str) -> None:
        if result.digest is None:
            raise AssertionError(f"{result.role}: in the registry without a digest")
        tag = repository.tag(name_for_role(name, result.role, of=len(run.wanted)))
        manifest = registry.manifest(result.digest)
        registry.put_manifest(tag, manifest.media_type, manifest.body)
        run.progress(Note(f"{result.role}: tagged {tag}"))

    for name in run.options.tags:
        run_all({result.role: partial(give, result, name) for result in results})
