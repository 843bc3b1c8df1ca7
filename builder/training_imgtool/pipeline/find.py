"""Finds the images of the current inputs in a registry, by content key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from training_imgtool.core.errors import InputError, NeedsEngineError
from training_imgtool.core.progress import Done, Note, Outcome, Progress
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.threads import run_all
from training_imgtool.direct.registry.evidence import Evidence
from training_imgtool.direct.registry.memory import RepositoryMemory, tag_of_stage
from training_imgtool.direct.registry.pending_heads import PendingHeads
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import BuildResult, BuildRun, name_for_role
from training_imgtool.registry.connect import Registries
from training_imgtool.spec.model import Role

Find = Callable[[tuple[RoleImage, ...]], Mapping[Role, BuildResult]]


def find_images(
    images: tuple[RoleImage, ...], find: Callable[[Tag], Digest | None], progress: Progress
) -> dict[Role, Digest | None]:
    """Finds each image by its tag with `find`, side by side; roles without an image have None."""

    def ask(image: RoleImage) -> Digest | None:
        started = time.monotonic()
        digest = find(image.registry_tag)
        if digest is not None:
            progress(Done(image.role, Outcome.FOUND, str(image.tag), time.monotonic() - started))
        return digest

    return run_all({image.role: partial(ask, image) for image in images})


def head(registries: Registries, tag: Tag) -> Digest | None:
    """The digest that a registry has under a tag, by one HEAD request."""
    digest = registries.at(tag.repository).head(tag)
    return tag.repository.digest(digest) if digest else None


def require_images(
    inputs: Inputs, registries: Registries, progress: Progress, wanted: tuple[RoleImage, ...] | None = None
) -> Mapping[Role, Digest]:
    """Returns the digest of every role, or of those that are `wanted`.

    Raises InputError that names the missing images and the command that makes them.
    """
    wanted = inputs.images if wanted is None else wanted
    digests = find_images(wanted, partial(head, registries), progress)
    missing = [image for image in wanted if digests[image.role] is None]
    if missing:
        names = ", ".join(image.role for image in missing)
        raise InputError(
            f"{len(missing)} of {len(digests)} images of the current spec, lock and code are not in the registry:"
            f" {names}",
            hint=f"imgtool push {inputs.spec_file.path}",
            details=tuple(f"{image.role}: {image.tag}" for image in missing),
        )
    return {role: digest for role, digest in digests.items() if digest is not None}


class KeyedImages:
    """The images of a run in the spec's repository, each under the tag of its key. Threads may call it at will.

    Attributes:
        evidence: what this run knows of the repository.
        pending: requests for images that `find` presumed missing; uploads wait for the answers.
    """

    def __init__(self, run: BuildRun, registries: Registries) -> None:
        self._run = run
        repository, believe = run.inputs.repository, not run.options.no_cache
        self.evidence = Evidence(registries, repository, run.settings.cache, believe=believe)
        self.pending = PendingHeads({})

    def find(self, images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        """Returns the images that the repository holds whole; none with `--no-cache`."""
        run = self._run
        if run.options.no_cache:
            return {}
        if run.options.only_engine or run.options.create_repository:
            return self.find_each(images)
        return presume_missing(self.find_each, run, self.evidence.memory, self._ask)(images)

    def find_each(self, images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        """Returns the images that the repository holds whole, with a request for each."""
        digests = find_images(images, self.evidence.find, self._run.progress)
        return {
            image.role: BuildResult.of(image, Outcome.FOUND, digest)
            for image in images
            if (digest := digests[image.role]) is not None
        }

    def answer(self, image: RoleImage) -> BuildResult | None:
        """Waits for the image's pending request, if there is one; None when the image is missing."""
        digest = self.pending.digest(image.registry_tag)
        if digest is None:
            return None
        self._run.progress(Done(image.role, Outcome.FOUND, str(image.tag)))
        return BuildResult.of(image, Outcome.FOUND, digest)

    def finish(self, results: Sequence[BuildResult]) -> None:
        """Remembers the tags of the images, and moves the tags that the user named."""
        for result in results:
            if result.tag:
                self.evidence.memory.add_tag(result.tag.name)
        for name in self._run.options.tags:
            run_all({result.role: partial(self._name, result, name) for result in results})

    def _ask(self, images: tuple[RoleImage, ...]) -> None:
        """Sends a HEAD request for each image without waiting for the answers."""
        tags = [image.registry_tag for image in images]
        self.pending = PendingHeads({tag: partial(self.evidence.find, tag) for tag in tags})

    def _name(self, result: BuildResult, name: str) -> None:
        """Gives an image a further tag: NAME, or ROLE-NAME when the run has several roles."""
        if result.digest is None:
            raise AssertionError(f"{result.role}: in the registry without a digest")
        repository = self._run.inputs.repository
        tag = repository.tag(name_for_role(name, result.role, of=len(self._run.wanted)))
        registry = self.evidence.registry
        manifest = registry.manifest(result.digest)
        registry.put_manifest(tag, manifest.media_type, manifest.body)
        self._run.progress(Note(f"{result.role}: tagged {tag}"))


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
    from training_imgtool.pipeline.builders import plan_role  # a run that finds every image does not need it

    try:
        for image in images:
            plan_role(run.inputs, image)
    except NeedsEngineError:
        return False
    return True
