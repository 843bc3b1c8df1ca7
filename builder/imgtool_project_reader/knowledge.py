"""Defines what the caller of the reader must provide: which releases exist, and which versions fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Texts = tuple[tuple[str, str], ...]  # names and contents of requirements files


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of TensorFlow.

    Attributes:
        pythons: the minors of Python for which the release has wheels, oldest first.
        is_recommended: whether this is the recommended release of its minor.
        has_cuda_wheels: whether wheels provide CUDA for the release.
        requires: the limits in the release's METADATA, by package.
    """

    pythons: tuple[str, ...]
    is_recommended: bool = False
    has_cuda_wheels: bool = False
    requires: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Variant:
    """The image of a proposal: the release of TensorFlow, the minor version of Python, and cpu, gpu or tpu.

    If `jax` is set, the image has no TensorFlow; `tensorflow` then only selects packages of the same age.
    """

    tensorflow: str
    python: str
    accelerator: str
    jax: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why an image cannot install a requirement, with facts about the package."""

    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The caller's knowledge. All functions of this class raise ValueError if they fail.

    Attributes:
        releases: TensorFlow's releases, oldest first.
        resolve: returns the Python of an image; gets the release of TensorFlow, the wanted Python or None, and the
            accelerator.
        read_list: returns the texts of a requirements file and of included files; gets the project's folder, the file's
            path in that folder, and the extras.
        read_yaml: returns a document as dictionaries, lists and texts.
        find_jax: returns the newest release of JAX that a specifier set allows.
        find_fault: returns the first fault in such texts for an image; None if the image can install everything.
    """

    releases: Mapping[str, Release]
    resolve: Callable[[str, str | None, str], str]
    read_list: Callable[[Path, str, tuple[str, ...]], Texts]
    read_yaml: Callable[[str], object]
    find_fault: Callable[[Texts, Variant], Fault | None]
    find_jax: Callable[[str], str] = str
