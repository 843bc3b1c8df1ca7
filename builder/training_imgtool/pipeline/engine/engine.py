"""The engine of one run, which runs the stages that imgtool cannot make itself: a builder of buildx.

It gets the stage's own files, and images by digest; no wheels.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, Self

from training_imgtool.core.atomic_files import hold_lock
from training_imgtool.core.errors import (
    EngineUnavailableError,
    InputError,
    NeedsEngineError,
    RegistryRefusedError,
    VerificationError,
)
from training_imgtool.core.progress import Done, Note, Outcome
from training_imgtool.core.reference import Digest, Login, Repository, Tag, apply_mirror, parse_reference
from training_imgtool.core.threads import SingleFlight
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import context_sources, image_names, needed_stages
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.engines.buildx.solve import Buildx, Solve, Solved
from training_imgtool.http.addresses import speaks_http
from training_imgtool.pipeline.engine.secrets import hidden_values, take_secrets
from training_imgtool.pipeline.find import find_image
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun, missing_push
from training_imgtool.pipeline.run_wheels import WheelContext
from training_imgtool.registry.connect import Registries
from training_imgtool.spec.secrets import secret_sources


class StageImages(Protocol):
    """Makes sure that the registry has the image of a stage."""

    def image_of(self, image: RoleImage, label: str) -> Digest:
        """Returns the stage's image, made when it is missing."""


class Engine:
    """Has one builder of buildx run stages, each key once; it looks for buildx when a stage needs it. Thread-safe."""

    def __init__(self, run: BuildRun, registries: Registries) -> None:
        self._run = run
        self._registries = registries
        self._wheels = WheelContext(run.inputs, run.settings, run.progress)
        self._pushed: SingleFlight[Digest] = SingleFlight()
        self._opening: SingleFlight[Buildx] = SingleFlight()
        self._opened: Buildx | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.stop()

    def require(self, label: str, reason: str) -> None:
        """Raises EngineUnavailableError with the reason when buildx is not installed, or the options forbid it."""
        if self._run.options.engine == "direct":
            raise NeedsEngineError(f"the stage {label} needs an engine: {reason}", hint="leave out --engine direct")
        try:
            self._open()
        except EngineUnavailableError as error:
            message = f"the stage {label} needs an engine ({reason}): {error.message}"
            raise EngineUnavailableError(message, hint=error.hint, details=error.details) from error

    def is_there(self) -> bool:
        """Returns whether the options allow an engine and buildx is installed."""
        with suppress(EngineUnavailableError):
            return self._run.options.engine != "direct" and self._open() is not None
        return False

    def push(self, image: RoleImage, label: str, tag: Tag, images: StageImages, *, anew: bool = False) -> Digest:
        """Runs a stage, with `--engine buildx` also those below it, and pushes it under a tag.

        Returns the digest that the registry confirms. What a RUN makes differs from run to run, and one key has one
        digest: so runs that share a cache take turns, and take what another one pushed meanwhile.

        Args:
            image: the image that the stage belongs to.
            label: the stage's.
            tag: where it goes.
            images: makes sure of the stages that the stage starts from.
            anew: pushes it in any case, as the registry has lost a part of what it has under the tag.

        Raises what `Buildx.run` and `images` raise, and VerificationError when the registry has another image, or none.
        """
        return self._pushed.do(tag, lambda: self._find_or_push(image, label, tag, images, anew=anew))

    def _find_or_push(self, image: RoleImage, label: str, tag: Tag, images: StageImages, *, anew: bool) -> Digest:
        run, subject, locks = self._run, image.subject_of(label), self._run.settings.cache / "stages"
        with suppress(OSError):
            locks.mkdir(parents=True, exist_ok=True)
        with hold_lock(locks / tag.name, lambda note: run.progress(Note(f"{subject}: {note}"))):
            if not (anew or run.options.no_cache) and (found := find_image(self._registries, tag)) is not None:
                run.progress(Done(subject, Outcome.FOUND, f"{tag}: another run has pushed it"))
                return found
            if run.options.engine == "buildx":
                return self._push(self._solve_whole(image, tag), tag)
            return self._push(self._solve_stage(image, label, tag, images), tag)

    def _open(self) -> Buildx:
        def open_buildx() -> Buildx:
            self._opened = Buildx(self._run.settings, self._run.options.builder or self._run.settings.builder)
            return self._opened

        return self._opening.do("buildx", open_buildx)

    def _push(self, solve: Solve, tag: Tag) -> Digest:
        run, started = self._run, time.monotonic()
        pushed = self._confirm(self._open().run(solve, run.progress), tag)
        run.progress(Done(solve.subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))
        return pushed

    def compile(self, image: RoleImage, label: str, tag: Tag, below: Digest) -> Digest:
        """Compiles /opt/venv of the image `below`, which has everything of the stage but bytecode; raises as `push`."""
        run, line = self._run, image.dockerfile.stage(label).line
        command = install_step.compile_command(image.plan.locked)
        reference = self._at_builder(below.repository).digest(below.digest)
        solve = Solve(
            subject=image.subject_of(label),
            dockerfile=f"FROM {reference}\nRUN {command}\n",
            lines=(line, line),
            context=lambda _: None,
            name=str(self._at_builder(tag.repository).tag(tag.name)),
            plain_http=self._plain_http(tag.repository),
            platform=run.inputs.plan.platform,
            logins=self._logins([tag.repository]),
            no_cache=run.options.no_cache,
        )
        return self._push(solve, tag)

    def _solve_stage(self, image: RoleImage, label: str, tag: Tag, images: StageImages) -> Solve:
        stage = image.dockerfile.stage(label)
        names = dict.fromkeys(_names(image.dockerfile, stage))
        digests = {name: self._find_image(image, stage, name, images) for name in names}
        self._note_wheels(stage)
        return self._solve(image, (stage,), tag, digests, repeat_arguments(image, stage))

    def _solve_whole(self, image: RoleImage, tag: Tag) -> Solve:
        file = image.dockerfile
        stages = tuple(needed_stages(file, file.stages[-1]))
        named = {name: stage for stage in stages for name in _names(file, stage) if file.earlier(name, stage) is None}
        digests = {name: self._find_image(image, stage, name, None) for name, stage in named.items()}
        lines = tuple(range(1, len(_split_lines(image.text)) + 1))
        return self._solve(image, stages, tag, digests, (image.text, lines))

    def _solve(
        self,
        image: RoleImage,
        stages: tuple[Stage, ...],
        tag: Tag,
        digests: Mapping[str, Digest],
        printed: tuple[str, tuple[int, ...]],
    ) -> Solve:
        run, dockerfile, stage = self._run, image.dockerfile, stages[-1]
        sources = secret_sources(run.inputs.spec_file, run.settings)
        secrets = tuple(dict.fromkeys(s for one in stages for s in take_secrets(dockerfile, one, sources)))
        read = context_sources(stages)
        text, lines = printed
        at_builder = {name: replace(one, repository=self._at_builder(one.repository)) for name, one in digests.items()}
        return Solve(
            subject=image.subject_of(stage.label),
            dockerfile=text,
            lines=lines,
            target=stage.label,
            images={name: one for name, one in at_builder.items() if "@" not in name or parse_reference(name) != one},
            frontend=self._frontend(dockerfile),
            context=lambda stream: self._wheels.write(read, stream),
            name=str(self._at_builder(tag.repository).tag(tag.name)),
            plain_http=self._plain_http(tag.repository),
            platform=stage.platform or run.inputs.plan.platform,
            secrets=secrets,
            hidden=hidden_values(secrets, run.settings.environ, text),
            logins=self._logins([tag.repository, *(digest.repository for digest in digests.values())]),
            no_cache=run.options.no_cache,
        )

    def _find_image(self, image: RoleImage, stage: Stage, name: str, images: StageImages | None) -> Digest:
        """Returns the image that FROM, COPY --from or a mount names; the base's has its own name, not a mirror's."""
        earlier = image.dockerfile.earlier(name, stage)
        if earlier is not None and earlier.name != name:
            raise InputError(
                f"{image.dockerfile.file}:{stage.line}: stage {stage.label} names the stage {name} by its number",
                hint=f"a builder gets stages by name: FROM {earlier.base} AS NAME, and NAME instead of {name}",
            )
        digest = images.image_of(image, earlier.label) if earlier and images else parse_reference(name)
        if not isinstance(digest, Digest):
            raise InputError(f"{image.dockerfile.file}:{stage.line}: {name}: an image without a digest")
        if digest == image.plan.base:
            return parse_reference(image.plan.base_name).repository.digest(digest.digest)
        return digest

    def _frontend(self, dockerfile: Dockerfile) -> str | None:
        """Returns the image of `# syntax=` as the builder reaches it; None where the file has its name already."""
        if (syntax := dockerfile.directives.get("syntax")) is None:
            return None
        frontend = parse_reference(syntax)
        reached = replace(frontend, repository=self._at_builder(frontend.repository))
        return None if reached == frontend else str(reached)

    def _at_builder(self, repository: Repository) -> Repository:
        """Returns the name by which the builder reaches a repository."""
        hosts = self._run.settings.builder_registries
        return apply_mirror(repository, {name: host.removeprefix("http://") for name, host in hosts.items()})

    def _plain_http(self, repository: Repository) -> bool:
        settings = self._run.settings
        named = settings.builder_registries.get(repository.registry)
        return named.startswith("http://") if named else speaks_http(repository.registry, settings.insecure)

    def _logins(self, repositories: list[Repository]) -> dict[str, Login]:
        logins = {}
        for repository in repositories:
            if login := self._registries.login(repository.registry).login:
                logins[self._at_builder(repository).registry] = login
        return logins

    def _note_wheels(self, stage: Stage) -> None:
        if any(source.strip("/").split("/")[0] == install_step.context_root() for source in context_sources((stage,))):
            text = f"the builder gets wheels: the stage {stage.label} copies them, and imgtool does not know its steps"
            self._run.progress(Note(text))

    def _confirm(self, solved: Solved, tag: Tag) -> Digest:
        """Asks the registry for what the builder says that it pushed."""
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
            hint="run the same command again; if that does not help, the builder adds attestations of its own",
        )


def repeat_arguments(image: RoleImage, stage: Stage) -> tuple[str, tuple[int, ...]]:
    """Returns the Dockerfile for a stage that starts from an image, and each line's number in the rendered one.

    BuildKit passes the ARGs of a stage on to those that start from it, and an image has none: so they follow FROM.
    """
    below = (step for other in image.dockerfile.below(stage) for step in other.instructions if step.name == "ARG")
    repeated = [(text, step.line + offset) for step in below for offset, text in enumerate(_split_lines(step.raw))]
    rendered = [(text, number) for number, text in enumerate(_split_lines(image.text), 1)]
    first = stage.line - 1 + len(_split_lines(stage.raw))
    lines = [*rendered[:first], *repeated, *rendered[first:]]
    return "".join(f"{text}\n" for text, _ in lines), tuple(number for _, number in lines)


def _names(dockerfile: Dockerfile, stage: Stage) -> list[str]:
    """Returns the stages and images that a stage names."""
    names = [stage.base, *(name for instruction in stage.instructions for name in image_names(instruction))]
    return [name.lower() if dockerfile.earlier(name, stage) else name for name in names if name != "scratch"]


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")
