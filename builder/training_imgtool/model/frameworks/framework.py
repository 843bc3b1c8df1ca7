"""What imgtool knows of a framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Files of a framework's wheel that a program may open, and how one does.

    Attributes:
        folder: below site-packages.
        source: matches source code that may open them.
        hints: source code without one of these does not match.
    """

    folder: str
    source: bytes
    hints: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Attributes:
        key: its key in specs and locks, and what a program imports.
        title: its name for people.
        example: a release of it, for messages.
        packages: the distributions that are it, of which an image has one; the first has all releases.
        others: matches the distributions that are other builds of it.
        own: further packages of the same makers, whose own mention of CUDA's headers does not count.
        last_releases: the last release of packages that ended before the others.
        cuda_extras: the extras that bring CUDA, which roles without GPUs do not get.
        cuda_from: where CUDA comes from; empty where a spec decides, and the release decides which CUDA.
        backend: what the image sets KERAS_BACKEND to if it has Keras 3; empty where Keras needs no word.
        headers: what trimming may leave out of its wheel.
        has_servers: whether its clusters have parameter servers and evaluators; else all processes compute.
    """

    key: str
    title: str
    example: str
    packages: tuple[str, ...]
    others: str
    own: tuple[str, ...] = ()
    last_releases: Mapping[str, str] = field(default_factory=dict)
    cuda_extras: tuple[str, ...]
    cuda_from: str = ""
    backend: str = ""
    headers: Headers | None = None
    has_servers: bool = False

    @property
    def label(self) -> str:
        """The label of images that has the release."""
        return f"dev.imgtool.{self.key}"
