"""Defines what the caller of the reader must provide: which releases exist, and which versions fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imgtool_project_reader.frameworks import Framework

Texts = tuple[tuple[str, str], ...]  # names and contents of requirements files


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of a framework.

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
    """The image of a proposal: the framework and its release, the minor version of Python, and cpu, gpu or tpu."""

    framework: Framework
    release: str
    python: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why an image cannot install a requirement, with facts about the package."""

    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The caller's knowledge. All functions of this class raise ValueError if they fail.

    Attributes:
        list_releases: returns the releases of a framework, oldest first; gets the framework's key. If it returns none,
            the reader takes a release that a file names.
        resolve: returns the Python of an image; gets the framework's key, its release, the wanted Python or None, and
            the accelerator.
        read_list: returns the texts of a requirements file and of included files; gets the project's folder, the file's
            path in that folder, and the extras.
        read_yaml: returns a document as dictionaries, lists and texts.
        find_fault: returns the first fault in such texts for an image; None if the image can install everything.
        report: gets the path of each Python file before the reader parses it.
    """

    list_releases: Callable[[str], Mapping[str, Release]]
    resolve: Callable[[str, str, str | None, str], str]
    read_list: Callable[[Path, str, tuple[str, ...]], Texts]
    read_yaml: Callable[[str], object]
    find_fault: Callable[[Texts, Variant], Fault | None]
    report: Callable[[str], None]
