"""One run of `build` or `push`: what was asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training_imgtool.build.inputs import Inputs, RoleImage
from training_imgtool.core.errors import UsageError
from training_imgtool.core.progress import Outcome, Progress
from training_imgtool.core.reference import Digest, InvalidReferenceError, Repository, Tag
from training_imgtool.core.settings import Settings
from training_imgtool.spec.model import Role

ENGINES = ("auto", "docker", "direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What `build` and `push` were asked for; raises UsageError for what no run could do, before one begins."""

    roles: tuple[Role, ...] = ()
    push: bool = False
    layout: Path | None = None  # an OCI layout to write instead
    engine: str = "auto"  # one of ENGINES
    tags: tuple[str, ...] = ()
    no_cache: bool = False
    create_repository: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"--engine {self.engine}: expected {', '.join(ENGINES)}")
        if self.tags and not self.push:
            raise UsageError("--tag names images in the registry", hint="add --push")
        for name in self.tags:
            try:  # in the longest form that it may get
                Repository("", "").tag(name if len(self.roles) == 1 else f"{Role.EVALUATOR}-{name}")
                Repository("", "").tag(name)
            except InvalidReferenceError as error:
                raise UsageError(f"--tag: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRun:
    """The inputs of a run with how to do it."""

    inputs: Inputs
    options: BuildOptions
    settings: Settings
    progress: Progress

    def __post_init__(self) -> None:
        self.inputs.selected(self.options.roles)  # raises UsageError for a role that the spec has not

    @property
    def wanted(self) -> tuple[RoleImage, ...]:
        """The images of the roles that were named, all when none was."""
        return self.inputs.selected(self.options.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """One role's image: where it is and how it came to be."""

    role: Role
    outcome: Outcome
    key: str
    tag: Tag | None
    digest: Digest | None = None  # None when the image is only in an engine's store
    image_id: str | None = None
    place: str | None = None  # where else it is, such as an OCI layout
    seconds: float = 0.0

    @property
    def reference(self) -> str:
        """What names the image: its digest in the registry, else where else it is, else its ID in the engine."""
        return str(self.digest or self.place or self.image_id)


def tag_of(image: RoleImage) -> Tag:
    """The tag that names the image by its key; raises UsageError when nobody said which registry."""
    if image.tag is None:
        raise UsageError("no registry", hint="give `registry:` in the spec, --registry HOST/PATH, or IMGTOOL_REGISTRY")
    return image.tag
