"""What depends on the framework in resolving: a module for each, which has the functions of `Rules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from training_imgtool.model.frameworks import Framework
    from training_imgtool.model.plan import Variant, Wheel
    from training_imgtool.model.spec import Accelerator, ImageSpec, Role
    from training_imgtool.resolve.versions.base_image import BaseImage
    from training_imgtool.resolve.versions.closure import Package
    from training_imgtool.resolve.versions.matrix import FittingBase, Matrix, Minor
    from training_imgtool.resolve.versions.request import Request
    from training_imgtool.resolve.versions.rules import Finding


class Index(Protocol):
    """What a package index says."""

    def list_files(self, package: str) -> tuple[str, ...]:
        """Lists the files of a package."""

    def read(self, file: str) -> Package:
        """Reads the metadata of a wheel that `list_files` has."""

    def find_links(self) -> Iterable[str]:
        """Lists the further places with wheels."""


class Rules(Protocol):
    """The module of a framework."""

    def needs_index(self, matrix: Matrix, version: str) -> bool:
        """Says whether only an index tells what a release needs."""

    def learn(self, matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
        """Returns the matrix with a row for the spec's release, and a warning that the row deserves, or nothing.

        Raises FieldError if the index lacks the release.
        """

    def notes_between(self, matrix: Matrix, before: str, after: str) -> tuple[str, ...]:
        """Returns what a user should know who moves from one release to another."""

    def package(self, request: Request, accelerator: Accelerator) -> str:
        """Names the distribution that a role installs."""

    def requirements(self, request: Request, accelerator: Accelerator) -> Iterator[str]:
        """Lists the framework, and what a fresh install of it lacks."""

    def constraints(self, request: Request, accelerator: Accelerator) -> Iterator[str]:
        """Lists what holds packages back, without which the release does not install or import."""

    def check_spec(self, request: Request, accelerators: list[Accelerator]) -> list[Finding]:
        """Finds what does not fit the release: the platform, an accelerator, a TPU."""

    def cuda_base(self, request: Request, python: str) -> FittingBase | None:
        """Chooses the nvidia/cuda tag of GPU roles; None where CUDA comes from wheels."""

    def check_cuda_base(self, request: Request, image: BaseImage, field: str) -> list[Finding]:
        """Checks an nvidia/cuda base whose CUDA the wheels open."""

    def libraries(self, minor: Minor) -> tuple[str, ...]:
        """Lists the libraries of the base that the wheels open."""

    def cuda(self, request: Request, image: BaseImage) -> tuple[str, str]:
        """Returns the CUDA and cuDNN that a GPU role has on an image."""

    def check_gpus(self, request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
        """Finds what does not fit the GPUs of roles."""

    def check_lock(self, matrix: Matrix, variant: Variant, index: Index) -> list[Finding]:
        """Finds what an index lacks for a variant."""

    def check_wheels(
        self, spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...], named: frozenset[str]
    ) -> Variant:
        """Returns the variant with what its wheels tell; `named` are the packages of the requirements.

        Raises FieldError for wheels that do not go together.
        """


def rules_of(framework: Framework) -> Rules:
    """Imports the module of a framework; a run loads only the one that it needs."""
    return cast("Rules", import_module(f"{__name__}.{framework.key}"))
