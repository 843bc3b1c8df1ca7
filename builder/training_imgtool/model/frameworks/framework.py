"""Defines the type `Framework`, which contains the facts about a framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Header files of a framework's wheel, and how to recognise programs that open them.

    Attributes:
        folder: their folder below site-packages.
        source: matches source code that may open them.
        hints: texts; matching source code contains at least one of them.
    """

    folder: str
    source: bytes
    hints: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Attributes:
        key: its key in specs and locks, and the name that programs import.
        title: its name for people.
        example: one of its releases, for messages.
        packages: its packages on PyPI, of which an image contains one; the first has all releases.
        others: matches packages that contain other builds of it.
        own: further packages of its makers; that they name CUDA's headers does not keep the headers in an image.
        last_releases: the last releases of discontinued packages.
        cuda_extras: the extras that install CUDA, which roles without GPUs do not get.
        cuda_from: the only source of CUDA; if it is empty, the spec chooses the source, and the release the version.
        cuda_form: a pattern of the spec's key `cuda`, and what it means for people.
        backend: the value of KERAS_BACKEND in images with Keras 3; empty if Keras needs none.
        headers: files of its wheel that trimming may leave out.
        trims: whether imgtool looks for unused files in its images, for which `lock` reads every wheel.
        complete: packages that need no library that a base lacks; a name with a hyphen at its end is a prefix.
        compiled: packages that have no wheels, because they are compiled for one build of the framework.
        build_index: the URL below which its makers have an index for each build.
        roles: the roles that it knows.
        tpu_target: the target of a first spec with TPUs.
        starter_env: variables of a first spec.
        by_variable: a package that images get if this variable of the spec is true, by the variable.
        oldest_starter: the oldest release with which the trainer of `init` runs; empty for all.
        no_role: why it knows no others.
        one_process: why a replica is always one process; empty if it may have several.
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
    cuda_form: tuple[str, str] = ("", "")
    backend: str = ""
    headers: Headers | None = None
    trims: bool = True
    complete: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    build_index: str = ""
    roles: tuple[str, ...]
    tpu_target: str
    starter_env: Mapping[str, str] = field(default_factory=dict)
    by_variable: Mapping[str, str] = field(default_factory=dict)
    oldest_starter: str = ""
    no_role: str = ""
    one_process: str = ""

    @property
    def label(self) -> str:
        """The label of images that contains the framework's release."""
        return f"dev.imgtool.{self.key}"

    def choose_packages(self, env: Mapping[str, str]) -> Iterator[str]:
        """Lists the packages that variables of the spec choose."""
        return (package for name, package in self.by_variable.items() if is_true(env.get(name)))


def is_true(value: str | None) -> bool:
    """Returns whether a variable of the spec is on."""
    return value in {"1", "true", "True"}
