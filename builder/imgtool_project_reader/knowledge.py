"""What the reader does not know by itself: which releases there are, and what fits together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Texts = tuple[tuple[str, str], ...]  # names and contents of requirements files


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of TensorFlow.

    Attributes:
        pythons: the minors that it has wheels for, oldest first.
        is_recommended: whether it is the one to take of its minor.
        has_cuda_wheels: whether wheels bring its CUDA.
        requires: the limits of its METADATA, by package.
    """

    pythons: tuple[str, ...]
    is_recommended: bool = False
    has_cuda_wheels: bool = False
    requires: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Variant:
    """The image that a proposal is for: TensorFlow's release, Python's minor, and cpu, gpu or tpu.

    With a release of JAX, TensorFlow's only stands for the packages of its time.
    """

    tensorflow: str
    python: str
    accelerator: str
    jax: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an image cannot install a requirement, and what is true instead."""

    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the caller knows. Its functions raise ValueError for what they cannot do.

    Attributes:
        releases: TensorFlow's, oldest first.
        resolve: returns the Python of an image, from TensorFlow's release, the wanted Python or None, and the
            accelerator.
        read_list: returns the texts of a requirements file and of those that it includes, from the project's folder,
            the file's path in it, and the extras.
        read_yaml: returns a document as dictionaries, lists and texts.
        find_jax: returns the newest release of JAX that a specifier set allows.
        find_fault: returns what an image cannot install of such texts; None where it can install all of it.
    """

    releases: Mapping[str, Release]
    resolve: Callable[[str, str | None, str], str]
    read_list: Callable[[Path, str, tuple[str, ...]], Texts]
    read_yaml: Callable[[str], object]
    find_fault: Callable[[Texts, Variant], Fault | None]
    find_jax: Callable[[str], str] = str
