"""Engines: what runs RUN instructions, in a store of their own (`docker/`) or for a registry (`buildx/`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from training_imgtool.core.errors import EngineUnavailableError


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
    lines: tuple[int, ...]
    no_cache: bool
