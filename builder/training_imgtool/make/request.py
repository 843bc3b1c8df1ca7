"""Defines what `build` and `push` take and return: the options, a run with its inputs, and the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from training_imgtool.base.errors import UsageError, VerificationError
from training_imgtool.base.progress import Outcome
from training_imgtool.base.reference import Digest, InvalidReferenceError, Repository, Tag
from training_imgtool.model.spec import Role
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.inputs import Inputs, RoleImage

ENGINES = ("auto", "buildx", "direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of `build` and `push`; raises UsageError for options that contradict each other."""

    roles: tuple[Role, ...] = ()  # empty: all
    push: bool = False
    layout: Path | None = None  # an OCI layout to write in place of a push
    engine: str = "auto"  # one of ENGINES
    builder: str | None = None  # of buildx; with it, `auto` is `buildx`
    tags: tuple[str, ...] = ()
    no_cache: bool = False
    create_repository: bool = False  # create the repository of Artifact Registry if it is missing
    check: bool = True  # check that the trainer can start

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"--engine {self.engine}: expected {', '.join(ENGINES)}")
        if self.engine == "direct" and self.builder:
            raise UsageError("--builder names a builder of buildx, and --engine direct does not use buildx")
        if (self.engine == "buildx" or self.builder) and not self.push:
            raise UsageError("a builder of buildx can only push images to a registry", hint="add --push")
        if self.tags and not self.push:
            raise UsageError("--tag names images in the registry", hint="add --push")
        for name in self.tags:
            try:  # the longest form of the tag
                Repository("", "").tag(name)
                Repository("", "").tag(name if len(self.roles) == 1 else f"{Role.EVALUATOR}-{name}")
            except InvalidReferenceError as error:
                raise UsageError(f"--tag: {error}") from error


def name_for_role(name: str, role: Role, *, of: int) -> str:
    """Returns the tag of a role's image for `--tag NAME`: NAME if the run has one image, else ROLE-NAME."""
    return name if of == 1 else f"{role}-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRun:
    """The inputs of a run, its options, and the machine that it runs on."""

    inputs: Inputs
    options: BuildOptions
    machine: Machine

    def __post_init__(self) -> None:
        self.inputs.selected(self.options.roles)  # raises UsageError for a role that the spec does not have

    @property
    def wanted(self) -> tuple[RoleImage, ...]:
        """The images of the roles in the options; all images if the options contain no roles."""
        return self.inputs.selected(self.options.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """One role's image: where it is, and how the run got it.

    Attributes:
        blobs: the sizes of the image's config and layers, by digest; empty if this run did not append the image.
        sent: the blobs that the registry lacked before the run.
        parts: if this run pushed an index, the images of the index in the order of the spec's platforms.
    """

    role: Role
    outcome: Outcome
    key: str
    tag: Tag | None
    digest: Digest | None = None  # None when no registry has the image
    image_id: str | None = None  # in an engine's store
    place: str | None = None  # another place of the image, such as an OCI layout
    seconds: float = 0.0
    blobs: Mapping[str, int] = field(default_factory=dict)
    sent: frozenset[str] = frozenset()
    parts: tuple[BuildResult, ...] = ()

    @classmethod
    def for_image(
        cls, image: RoleImage, outcome: Outcome, digest: Digest | None = None, image_id: str | None = None
    ) -> Self:
        """Returns the result for a role's image."""
        return cls(role=image.role, outcome=outcome, key=image.key, tag=image.tag, digest=digest, image_id=image_id)

    @property
    def reference(self) -> str:
        """The image's name: the digest in the registry, else the path of the layout, else the ID in the engine."""
        return str(self.digest or self.place or self.image_id)


def missing_push(pushed: Digest | Tag) -> VerificationError:
    """Returns the error for an image that the registry lacks, although an engine reported its push as done."""
    return VerificationError(
        f"{pushed}: the engine reported the push as done, but the registry does not have the image",
        hint="run the same command again; if the error comes back, the registry loses images that it accepts",
    )
