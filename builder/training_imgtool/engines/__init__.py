"""Engines: what runs RUN instructions. Each back end is a module with a class that satisfies `Engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Protocol

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.core.progress import Progress
from training_imgtool.core.reference import Digest, Login, Tag


class NoClassicBuilderError(EngineUnavailableError):
    """The engine no longer has the classic builder's API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBuild:
    """One stage to build: its own instructions on top of a parent that is already there.

    Attributes:
        key: the stage's content key; the engine tags the result `imgtool/stage:<key>` in its own store.
        images: what FROM and each `COPY --from` of a stage name: a base by digest, images of stages built before.
        dockerfile: the stage's text, with these names in it.
        context: writes a tar of exactly what the stage copies to a binary stream.
        line: the line of the rendered Dockerfile where the stage begins (1-based), for error messages.
        lines: the line there of each instruction of `dockerfile`, in order; empty when unknown.
    """

    key: str
    subject: str
    images: tuple[str, ...]
    dockerfile: str
    context: Callable[[IO[bytes]], None]
    line: int
    platform: str
    lines: tuple[int, ...] = ()
    no_cache: bool = False


class Engine(Protocol):
    """Builds stages and pushes images. Implementations read no environment and print nothing."""

    name: str
    reads_zstd: bool  # whether it unpacks zstd layers
    refuses_unknown: bool  # whether it refuses all syntax that only BuildKit has; Docker's classic builder drops some

    def image_id(self, key: str) -> str | None:
        """Returns the image built under `key` that the engine still has, or None."""

    def pull_base(self, base: Digest, platform: str, login: Login | None, progress: Progress) -> None:
        """Makes the base available under its digest; raises RegistryRefusedError, CredentialsError, TemporaryError."""

    def build(self, stage: StageBuild, progress: Progress) -> str:
        """Builds one stage and returns its image ID; raises BuildFailedError, EngineUnavailableError."""

    def tag(self, image_id: str, tag: Tag) -> bool:
        """Names an image; returns whether no image had that name before."""

    def untag(self, tag: Tag) -> None:
        """Takes a name away."""

    def push(self, tag: Tag, login: Login | None, progress: Progress, *, subject: str | None = None) -> str | None:
        """Pushes a tag; the manifest digest the registry was given (`sha256:…`), None where the engine does not say.

        `subject` is what progress calls it; without it, the tag's name.
        Raises RegistryRefusedError, CredentialsError, TemporaryError, EngineUnavailableError.
        """

    def name_stage(self, image: str, key: str) -> None:
        """Names an image that the engine has, by reference or ID, so that `image_id(key)` finds it."""

    def load(self, blocks: Iterable[bytes], key: str) -> str:
        """Loads an image from the blocks of a tar as `docker load` takes it, so that `image_id(key)` finds it.

        Returns the image's ID; raises EngineUnavailableError.
        """

    def close(self) -> None:
        """Stops what is still running."""
