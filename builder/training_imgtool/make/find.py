"""Finds the images of the current inputs in a registry, by content key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from training_imgtool.base.errors import ImageMissingError
from training_imgtool.base.progress import Done, Note, Outcome
from training_imgtool.base.reference import Digest, Tag
from training_imgtool.base.threads import run_all
from training_imgtool.make.request import BuildResult, BuildRun, name_for_role
from training_imgtool.model.spec import Role
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.failures import TagImmutableError
from training_imgtool.plan.inputs import Inputs, RoleImage


def find_images(images: tuple[RoleImage, ...], machine: Machine) -> dict[Role, Digest | None]:
    """Finds the image of each role by tag, in parallel; the value for a role without an image is None.

    If the tag of a role is missing, the role gets the image of another role with the same key.
    """
    return {role: digest for role, (digest, _) in _look_up(images, machine).items()}


def _look_up(images: tuple[RoleImage, ...], machine: Machine) -> dict[Role, tuple[Digest | None, bool]]:
    """Finds the image of each role; the second value tells whether the tag of the role exists."""
    started, registries = time.monotonic(), machine.registries
    tags = {image.role: image.registry_tag for image in images}
    heads = run_all({role: partial(registries.at(tag.repository).head, tag) for role, tag in tags.items()})
    named = {tags[role].repository.digest(digest) for role, digest in heads.items() if digest}
    there = run_all({image: partial(registries.at(image.repository).find_manifest, image) for image in named})
    of_templates = {
        tags[image.role].repository.digest(digest): image
        for image in images
        if image.recipe.template and (digest := heads[image.role])
    }
    for made, image in of_templates.items():
        if there[made]:
            from training_imgtool.make.finished import check_finished

            check_finished(machine, image, made)
    own: dict[Role, Digest] = {}
    by_key: dict[str, Digest] = {}
    for image in images:
        digest = heads[image.role]
        if digest and there[found := tags[image.role].repository.digest(digest)]:
            own[image.role] = found
            by_key.setdefault(image.key, found)
    for image in images:
        if image.key in by_key:
            machine.progress(Done(image.role, Outcome.FOUND, str(image.tag), time.monotonic() - started))
    return {image.role: (own.get(image.role, by_key.get(image.key)), heads[image.role] is not None) for image in images}


def find_image(registries: Registries, tag: Tag) -> Digest | None:
    """Returns the digest of a tag in a registry, after reading the manifest of that digest.

    The answer to a HEAD request alone proves nothing, because it may come from a proxy's cache.
    """
    registry = registries.at(tag.repository)
    digest = registry.head(tag)
    image = tag.repository.digest(digest) if digest else None
    return image if image and registry.find_manifest(image) else None


def require_images(
    inputs: Inputs, machine: Machine, wanted: tuple[RoleImage, ...] | None = None
) -> Mapping[Role, Digest]:
    """Maps each role in `wanted` (by default every role) to the digest of the role's image.

    Raises ImageMissingError, which names the missing images and the command that makes them.
    """
    wanted = inputs.images if wanted is None else wanted
    digests = find_images(wanted, machine)
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
    """Returns the hint for errors about missing images."""
    return f"imgtool push {inputs.spec_file.path}; imgtool show --why lists the changes since this machine's last push"


def find_results(run: BuildRun) -> Mapping[Role, BuildResult]:
    """Finds the run's images in the spec's repository by their keys, and adds tags that are missing.

    Returns nothing with `--no-cache`.
    """
    if run.options.no_cache:
        return {}
    results = {}
    for role, (digest, has_tag) in _look_up(run.wanted, run.machine).items():
        if digest is not None:
            (image,) = run.inputs.selected((role,))
            if not has_tag:
                add_tag(run.machine.registries, digest, image.registry_tag)
            results[role] = BuildResult.for_image(image, Outcome.FOUND, digest)
    return results


def add_tag(registries: Registries, image: Digest, tag: Tag) -> None:
    """Adds the tag with an image's key. Ignores TagImmutableError, as another run may have put the tag."""
    with suppress(TagImmutableError):
        put_tag(registries, image, tag)


def put_tag(registries: Registries, image: Digest, tag: Tag) -> None:
    """Adds a tag to an image in a registry."""
    registry = registries.at(image.repository)
    manifest = registry.manifest(image)
    registry.put_manifest(tag, manifest.media_type, manifest.body)


def name_results(run: BuildRun, results: Sequence[BuildResult]) -> None:
    """Moves the tags of `--tag` to the images: NAME if all roles share an image, else ROLE-NAME."""
    repository = run.inputs.repository
    distinct = len({result.digest for result in results})

    def give(result: BuildResult, name: str) -> None:
        if result.digest is None:
            raise AssertionError(f"{result.role}: the registry has the image and reports no digest")
        tag = repository.tag(name_for_role(name, result.role, of=distinct))
        put_tag(run.machine.registries, result.digest, tag)
        run.machine.progress(Note(f"{result.role}: tagged {tag}"))

    for name in run.options.tags:
        run_all({result.role: partial(give, result, name) for result in (results if distinct > 1 else results[:1])})
