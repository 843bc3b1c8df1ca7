"""The road without a daemon: layers are made here and appended to what the registry has.

A role's image is its own small layer on its variant's `packages` image, which lies in the repository under its key:
only when that is missing are wheels made into layers, and only when the base needs Debian packages does an engine
run, once, for the `system` stage.
"""

from __future__ import annotations

import time
from functools import partial

from training_imgtool.build.request import BuildResult, BuildRun, tag_of
from training_imgtool.build.role_build import RoleBuild, workshop
from training_imgtool.build.stage_images import Below, StageImages
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.progress import Done, Outcome, Step
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.core.single_flight import SingleFlight
from training_imgtool.core.threads import run_all
from training_imgtool.direct.build import build_image
from training_imgtool.direct.layers.context_layers import OnceEach
from training_imgtool.direct.registry.pending_heads import ThereError
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.http.failures import BlobUnknownError, TagImmutableError
from training_imgtool.spec.model import Role


class DirectBuilder:
    """Makes and pushes images for one run."""

    def __init__(self, work: BuildRun, registries: Registries, publisher: Publisher) -> None:
        self._work = work
        self._publisher = publisher
        self._stages = StageImages(work, registries, publisher)
        self._contexts: OnceEach = SingleFlight()

    def make(self, ways: tuple[RoleBuild, ...]) -> tuple[dict[Role, BuildResult], dict[Role, NeedsEngineError]]:
        """Makes the images side by side and pushes them; what turns out to be for an engine is returned as such.

        Raises the gravest of all failures.
        """
        try:
            made = run_all({one.image.role: partial(self._role, one) for one in ways})
        except BaseException:
            self._stages.give_up()
            raise
        self._stages.finish()
        return (
            {role: found for role, found in made.items() if isinstance(found, BuildResult)},
            {role: found for role, found in made.items() if isinstance(found, NeedsEngineError)},
        )

    def _role(self, one: RoleBuild) -> BuildResult | NeedsEngineError:
        started = time.monotonic()
        image, outcome = one.image, Outcome.APPENDED
        try:
            digest = self._pushed(one, self._stages.below(one))
        except NeedsEngineError as error:
            return error
        except ThereError:
            digest, outcome = self._found(tag_of(image)), Outcome.FOUND
        except TagImmutableError as error:
            digest, outcome = self._taken(one, error), Outcome.FOUND
        seconds = time.monotonic() - started
        what = str(image.tag if outcome is Outcome.FOUND else digest)
        self._work.progress(Done(image.role, outcome, what, seconds))
        return BuildResult(
            role=image.role, outcome=outcome, key=image.key, tag=image.tag, digest=digest, seconds=seconds
        )

    def _found(self, tag: Tag) -> Digest:
        """What was under the tag after all, while an image was made for it."""
        digest = self._publisher.asked.digest(tag) if self._publisher.asked else None
        if digest is None:
            raise AssertionError(f"{tag} was found and is not there")
        return digest

    def _pushed(self, one: RoleBuild, below: Below) -> Digest:
        """Appends and pushes; once more when the registry turns out to have lost what it had."""
        self._work.progress(Step(one.image.role, "appending"))
        try:
            return self._appended(one, below)
        except BlobUnknownError as error:
            if not below.lacks(error):
                raise
            return self._appended(one, self._stages.below(one, lost=below))

    def _appended(self, one: RoleBuild, below: Below) -> Digest:
        stored, role = below.stored, one.image.role
        ready, contexts = self._publisher.send, self._contexts
        with workshop(one, self._work, stored.config, ready, contexts=contexts, subject=role) as shop:
            made = build_image(
                one.image.dockerfile,
                (one.own,),
                one.material,
                shop,
                start=self._stages.start(one, below, shared=False),
            )
            return self._publisher.publish(made, tag_of(one.image), role, below.where)

    def _taken(self, one: RoleBuild, error: TagImmutableError) -> Digest:
        """The image that somebody else put under the key meanwhile; it has the same inputs."""
        tag = tag_of(one.image)
        held = None if self._work.options.no_cache else self._publisher.evidence.find(tag)
        if held is None:
            raise error
        return held
