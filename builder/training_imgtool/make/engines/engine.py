"""The engine of one run, a builder of buildx, which runs the stages with shell lines, or makes whole images.

A stage with shell lines gets no files; the lines run on an image that a digest names. For a whole image, the builder
gets the same files as `render -o` writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

from training_imgtool.base.atomic_files import hold_lock
from training_imgtool.base.errors import (
    EngineUnavailableError,
    NeedsEngineError,
    RegistryRefusedError,
    VerificationError,
)
from training_imgtool.base.http.addresses import speaks_http
from training_imgtool.base.progress import Done, Note, Outcome
from training_imgtool.base.reference import Digest, Login, Repository, Tag, apply_mirror, parse_reference
from training_imgtool.base.threads import SingleFlight
from training_imgtool.make.engines.buildx.request import Solve
from training_imgtool.make.engines.buildx.solve import Buildx, Solved
from training_imgtool.make.engines.secrets import hidden_values, take_secrets
from training_imgtool.make.find import find_image
from training_imgtool.make.finished import check_finished
from training_imgtool.make.request import BuildRun, missing_push
from training_imgtool.make.run_wheels import make_build_context
from training_imgtool.model.recipe.printing import print_dockerfile
from training_imgtool.model.recipe.recipe import RUN, SETUP, Stage
from training_imgtool.plan.inputs import RoleImage


class Engine:
    """Runs stages on one builder of buildx, once per key; looks for buildx when first needed. Thread-safe."""

    def __init__(self, run: BuildRun) -> None:
        self._run = run
        self._registries = run.machine.registries
        self._pushed: SingleFlight[Digest] = SingleFlight()
        self._opening: SingleFlight[Buildx] = SingleFlight()
        self._opened: Buildx | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.stop()

    def require(self, label: str, reason: str, way_out: str | None = None) -> None:
        """Raises an error that contains `reason` if buildx is not installed, or if the options forbid engines."""
        if self._run.options.engine == "direct":
            raise NeedsEngineError(f"the stage {label} needs an engine: {reason}", hint="leave out --engine direct")
        try:
            self._open()
        except EngineUnavailableError as error:
            message = f"the stage {label} needs an engine ({reason}): {error.message}"
            hint = f"{way_out}: {error.hint}" if way_out else error.hint
            raise EngineUnavailableError(message, hint=hint, details=error.details) from error

    def run_stage(self, image: RoleImage, stage: Stage, tag: Tag, below: Digest, *, anew: bool = False) -> Digest:
        """Runs a stage on the image `below`, and pushes it under a tag.

        Returns the digest that the registry confirms. The same lines can give different images, but one key must have
        one digest. So runs that share a cache run a stage one after the other, and use the image that the first run
        pushed.

        Args:
            image: the image that the stage belongs to.
            stage: the stage.
            tag: the tag to push.
            below: the image that the stage starts from.
            anew: whether to push even if the tag exists, because the registry has lost a part of the image.

        Raises what `Buildx.run` raises, and VerificationError when the registry has another image, or none.
        """

        def solve() -> Solve:
            repository = self._origin_of(below.repository)
            text = f"FROM {self._at_builder(repository).digest(below.digest)}\n{stage.text}"
            return self._describe(image, stage, text, tag, repository, secrets=stage.name in {RUN, SETUP})

        return self._pushed.do(tag, lambda: self._find_or_push(image, stage, tag, solve, anew=anew))

    def push_whole(self, image: RoleImage) -> Digest:
        """Makes a whole image from its printed Dockerfile, and pushes it; raises what `run_stage` raises."""
        tag = image.registry_tag

        def solve() -> Solve:
            run, recipe = self._run, image.recipe
            repository = self._origin_of(recipe.base.repository)
            text = print_dockerfile(recipe, image.key, base=str(self._at_builder(repository)))
            context = make_build_context(run.inputs, (image.locked,), run.machine)
            solve = self._describe(image, image.own, text, tag, repository, secrets=True)
            return replace(solve, context=context.write_tar, is_whole=True, epoch=recipe.epoch)

        pushed = self._pushed.do(tag, lambda: self._find_or_push(image, image.own, tag, solve, anew=False))
        check_finished(self._run.machine, image, pushed)
        return pushed

    def _find_or_push(
        self, image: RoleImage, stage: Stage, tag: Tag, solve: Callable[[], Solve], *, anew: bool
    ) -> Digest:
        run, subject, locks = self._run, image.subject_of(stage), self._run.machine.settings.cache / "stages"
        with suppress(OSError):
            locks.mkdir(parents=True, exist_ok=True)
        with hold_lock(locks / tag.name, lambda note: run.machine.progress(Note(f"{subject}: {note}"))):
            if not (anew or run.options.no_cache) and (found := find_image(self._registries, tag)) is not None:
                run.machine.progress(Done(subject, Outcome.FOUND, f"{tag}: another run has pushed it"))
                return found
            return self._push(solve(), tag)

    def _open(self) -> Buildx:
        def open_buildx() -> Buildx:
            self._opened = Buildx(
                self._run.machine.settings, self._run.options.builder or self._run.machine.settings.builder
            )
            return self._opened

        return self._opening.do("buildx", open_buildx)

    def _push(self, solve: Solve, tag: Tag) -> Digest:
        run, started = self._run, time.monotonic()
        pushed = self._confirm(self._open().run(solve, run.machine.progress), tag)
        run.machine.progress(Done(solve.subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))
        return pushed

    def _describe(
        self, image: RoleImage, stage: Stage, text: str, tag: Tag, base: Repository, *, secrets: bool
    ) -> Solve:
        """Describes a build whose context contains no files.

        Args:
            image: the image that the stage belongs to.
            stage: the stage, for messages.
            text: the Dockerfile.
            tag: the tag of the result.
            base: the repository of the image that the build starts from.
            secrets: whether the build mounts the secrets of the spec.
        """
        run = self._run
        given = take_secrets(run) if secrets else ()
        return Solve(
            subject=image.subject_of(stage),
            dockerfile=text,
            context=lambda _: None,
            name=str(self._at_builder(tag.repository).tag(tag.name)),
            plain_http=self._plain_http(tag.repository),
            platform=run.inputs.spec.platform,
            secrets=given,
            hidden=hidden_values(given, run.machine.settings.environ, text),
            logins=self._logins([tag.repository, base]),
            no_cache=run.options.no_cache,
        )

    def _origin_of(self, repository: Repository) -> Repository:
        """Returns the original repository if `repository` is on a mirror, else `repository`."""
        recipes = [image.recipe for image in self._run.inputs.images]
        origins = {recipe.base.repository: parse_reference(recipe.base_name).repository for recipe in recipes}
        return origins.get(repository, repository)

    def _at_builder(self, repository: Repository) -> Repository:
        """Returns the repository under the registry's name that the builder uses (IMGTOOL_BUILDER_REGISTRIES)."""
        hosts = self._run.machine.settings.builder_registries
        return apply_mirror(repository, {name: host.removeprefix("http://") for name, host in hosts.items()})

    def _plain_http(self, repository: Repository) -> bool:
        settings = self._run.machine.settings
        named = settings.builder_registries.get(repository.registry)
        return named.startswith("http://") if named else speaks_http(repository.registry, settings.insecure)

    def _logins(self, repositories: list[Repository]) -> dict[str, Login]:
        logins = {}
        for repository in repositories:
            if login := self._registries.login(repository.registry).login:
                logins[self._at_builder(repository).registry] = login
        return logins

    def _confirm(self, solved: Solved, tag: Tag) -> Digest:
        """Checks that the registry has the image that the builder reports as pushed."""
        registry, other = self._registries.at(tag.repository), None
        for place in (tag.repository.digest(solved.digest), tag):
            try:
                stored = registry.manifest(place)
            except RegistryRefusedError:
                continue
            if stored.is_index:
                other = "an index of several images"
            elif stored.digest == solved.digest or (solved.config and stored.config.digest == solved.config):
                return tag.repository.digest(stored.digest)
            else:
                other = stored.digest
        if other is None:
            raise missing_push(tag)
        raise VerificationError(
            f"{tag}: {self._open().name} reported the push of {solved.digest[:19]} as done; the registry has {other}",
            hint="run the same command again; if the error comes back, the builder may add attestations to the image",
        )
