"""Stages that a builder of buildx runs and pushes. It gets the stage's own files, and images by digest; no wheels."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from training_imgtool.core.errors import InputError, RegistryRefusedError, VerificationError
from training_imgtool.core.progress import Done, Note, Outcome
from training_imgtool.core.reference import Digest, Login, Repository, Tag, apply_mirror, parse_reference
from training_imgtool.core.threads import SingleFlight
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import bound_sources, image_names, list_mounts
from training_imgtool.dockerfile.parse import Dockerfile, Instruction, Stage
from training_imgtool.engines.buildx.solve import Buildx, Solve, Solved
from training_imgtool.engines.stage_runner import context_sources
from training_imgtool.http.addresses import speaks_http
from training_imgtool.pipeline.engine.secrets import hidden_values, take_secrets
from training_imgtool.pipeline.engine.split import copies_wheels, split_wheels
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun, missing_push
from training_imgtool.pipeline.run_wheels import WheelContext
from training_imgtool.registry.connect import Registries
from training_imgtool.spec.secrets import secret_sources


class StageImages(Protocol):
    """Makes sure that the registry has the image of a stage."""

    def image_of(self, image: RoleImage, label: str) -> Digest:
        """Returns the stage's image, made when it is missing."""


class BuildxEngine:
    """Runs stages on one builder, each key once. Thread-safe.

    Args:
        run: the run.
        registries: the clients.
        builder: the builder's name; None for the one that buildx chooses. Raises EngineUnavailableError without buildx.
    """

    def __init__(self, run: BuildRun, registries: Registries, builder: str | None) -> None:
        self._run = run
        self._registries = registries
        self._buildx = Buildx(run.settings, builder)
        self._wheels = WheelContext(run.inputs, run.settings, run.progress)
        self._pushed: SingleFlight[Digest] = SingleFlight()

    def close(self) -> None:
        """Ends what the builder runs for this run."""
        self._buildx.stop()

    def push(self, image: RoleImage, label: str, tag: Tag, images: StageImages) -> Digest:
        """Runs a stage and pushes it under a tag; returns the digest that the registry confirms.

        Raises what `Buildx.run` and `images` raise, and VerificationError when the registry has another image, or none.
        """
        return self._pushed.do(tag, lambda: self._push(image, label, tag, images))

    def _push(self, image: RoleImage, label: str, tag: Tag, images: StageImages) -> Digest:
        run, started, subject = self._run, time.monotonic(), image.subject_of(label)
        image = split_wheels(run.inputs, image, label)
        solve = self._solve(image, image.dockerfile.stage(label), tag, images)
        solved = self._buildx.run(replace(solve, subject=subject), run.progress)
        pushed = self._confirm(solved, tag)
        run.progress(Done(subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))
        return pushed

    def has_pushed(self, tag: Tag) -> bool:
        """Whether this builder ran what has this tag."""
        return self._pushed.has(tag)

    def compile(self, image: RoleImage, label: str, tag: Tag, below: Digest) -> Digest:
        """Compiles /opt/venv of the image `below`, which has everything of the stage but bytecode; raises as `push`."""
        run, started, subject = self._run, time.monotonic(), image.subject_of(label)
        line = image.dockerfile.stage(label).line
        command = install_step.compile_command(image.plan.locked)
        reference = self._at_builder(below.repository).digest(below.digest)
        solve = Solve(
            subject=subject,
            dockerfile=f"FROM {reference}\nRUN {command}\n",
            lines=(line, line),
            context=lambda _: None,
            name=str(self._at_builder(tag.repository).tag(tag.name)),
            plain_http=self._plain_http(tag.repository),
            platform=run.inputs.plan.platform,
            logins=self._logins([tag.repository]),
            no_cache=run.options.no_cache,
        )
        pushed = self._confirm(self._buildx.run(solve, run.progress), tag)
        run.progress(Done(subject, Outcome.PUSHED, str(pushed), time.monotonic() - started))
        return pushed

    def _solve(self, image: RoleImage, stage: Stage, tag: Tag, images: StageImages) -> Solve:
        run, dockerfile = self._run, image.dockerfile
        secrets = take_secrets(dockerfile, stage, secret_sources(run.inputs.spec_file, run.settings))
        names = [stage.base, *(name for instruction in stage.instructions for name in image_names(instruction))]
        digests = {name: self._image(image, stage, name, images) for name in dict.fromkeys(names)}
        references = {
            name: str(self._at_builder(digest.repository).digest(digest.digest))
            for name, digest in digests.items()
            if digest
        }
        text, lines = builder_text(
            name_frontend(dockerfile, run.settings.builder_registries),
            stage,
            {name: references.get(name, name) for name in names},
        )
        hidden = hidden_values(secrets, run.settings.environ, text)
        self._note_wheels(stage)
        read = (*context_sources(stage), *(path for step in stage.instructions for path in bound_sources(step)))
        return Solve(
            subject=stage.label,
            dockerfile=text,
            lines=lines,
            context=lambda stream: self._wheels.write(read, stream),
            name=str(self._at_builder(tag.repository).tag(tag.name)),
            plain_http=self._plain_http(tag.repository),
            platform=stage.platform or run.inputs.plan.platform,
            secrets=secrets,
            hidden=hidden,
            logins=self._logins([tag.repository, *(digest.repository for digest in digests.values() if digest)]),
            no_cache=run.options.no_cache,
        )

    def _image(self, image: RoleImage, stage: Stage, name: str, images: StageImages) -> Digest | None:
        """The image that FROM, COPY --from or a mount names; None for scratch. The base has its own name here."""
        if name == "scratch":
            return None
        earlier = image.dockerfile.earlier(name, stage)
        digest = parse_reference(name) if earlier is None else images.image_of(image, earlier.label)
        if not isinstance(digest, Digest):
            raise InputError(f"{image.dockerfile.file}:{stage.line}: {name}: an image without a digest")
        if digest == image.plan.base:
            return parse_reference(image.plan.base_name).repository.digest(digest.digest)
        return digest

    def _at_builder(self, repository: Repository) -> Repository:
        """Where the builder reaches a repository."""
        return _reach(repository, self._run.settings.builder_registries)

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
        if any(copies_wheels(instruction) for instruction in stage.instructions):
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
            f"{tag}: {self._buildx.name} reported the push of {solved.digest[:19]} as done; the registry has {other}",
            hint="run the same command again; if that does not help, the builder adds attestations of its own",
        )


def _reach(repository: Repository, hosts: Mapping[str, str]) -> Repository:
    return apply_mirror(repository, {name: host.removeprefix("http://") for name, host in hosts.items()})


def name_frontend(dockerfile: Dockerfile, hosts: Mapping[str, str]) -> Dockerfile:
    """The Dockerfile whose `# syntax=` names an image as the builder reaches it.

    Args:
        dockerfile: any.
        hosts: registries by the names that the builder knows, `http://` before those that speak plain HTTP.
    """
    if (syntax := dockerfile.directives.get("syntax")) is None:
        return dockerfile
    frontend = parse_reference(syntax)
    name = str(replace(frontend, repository=_reach(frontend.repository, hosts)))
    return replace(dockerfile, directives={**dockerfile.directives, "syntax": name})


def builder_text(dockerfile: Dockerfile, stage: Stage, references: dict[str, str]) -> tuple[str, tuple[int, ...]]:
    """The stage as a Dockerfile of its own, and for each of its lines the line of the rendered Dockerfile.

    It repeats the ARGs of the stages below, whose values BuildKit passes on.

    Args:
        dockerfile: the whole.
        stage: what to run.
        references: what stands for each image or stage that it names.
    """
    directives = [f"# {name}={value}\n" for name, value in dockerfile.directives.items()]
    platform = f"--platform={stage.platform} " if stage.platform else ""
    name = f" AS {stage.name}" if stage.name else ""
    texts = [(text, 1) for text in directives]
    texts += [(argument.raw, argument.line) for argument in dockerfile.args]
    texts.append((f"FROM {platform}{references[stage.base]}{name}\n", stage.line))
    below = (instruction for other in dockerfile.below(stage) for instruction in other.instructions)
    texts += [(instruction.raw, instruction.line) for instruction in below if instruction.name == "ARG"]
    texts += [(_with_references(instruction, references), instruction.line) for instruction in stage.instructions]
    ended = [(text if text.endswith("\n") else f"{text}\n", line) for text, line in texts]
    lines = tuple(line + offset for text, line in ended for offset in range(text.count("\n")))
    return "".join(text for text, _ in ended), lines


def _with_references(instruction: Instruction, references: dict[str, str]) -> str:
    """The instruction's lines with a reference for each image that its flags name; raises InputError for quotes."""
    changes = {}
    if (name := instruction.flag("from")) and instruction.name in {"ADD", "COPY"}:
        changes[f"--from={name}"] = f"--from={references[name]}"
    for mount in list_mounts(instruction):
        if mount.image:
            changes[f"--mount={mount.text}"] = f"--mount={_mount_from(mount.text, references[mount.image])}"
    text = instruction.raw
    for old, new in changes.items():
        text, count = re.subn(rf"{re.escape(old)}(?=\s|\Z)", new.replace("\\", r"\\"), text)
        if not count:
            raise InputError(f"line {instruction.line}: {instruction.name}: write {old} without quotes")
    return text


def _mount_from(text: str, reference: str) -> str:
    """The value of a `--mount` whose `from` is another one."""
    parts = (part.partition("=") for part in text.split(","))
    return ",".join(
        f"{name}={reference if name.strip().lower() == 'from' else value}" if equals else name
        for name, equals, value in parts
    )
