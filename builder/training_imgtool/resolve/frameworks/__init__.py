"""The parts of resolving that depend on the framework. Each framework has a module with the functions of `Rules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from training_imgtool.base.settings import Settings
    from training_imgtool.model.frameworks import Framework
    from training_imgtool.model.lock import Variant, Wheel
    from training_imgtool.model.spec import Accelerator, ImageSpec, Role
    from training_imgtool.resolve.versions.base_image import BaseImage
    from training_imgtool.resolve.versions.closure import Package
    from training_imgtool.resolve.versions.matrix import FittingBase, Matrix, Minor, Release
    from training_imgtool.resolve.versions.request import Request
    from training_imgtool.resolve.versions.rules import Finding
    from training_imgtool.resolve.wheels.index.index import Index as FileIndex


class Index(Protocol):
    """The queries that a framework's module sends to a package index."""

    def list_files(self, package: str, build: str = "") -> tuple[str, ...]:
        """Lists the files of a package; with `build`, those that the index for this build has of it."""

    def read(self, file: str) -> Package:
        """Reads the metadata of a wheel whose file name `list_files` returned."""

    def find_links(self) -> Iterable[str]:
        """Lists the find-links places: further folders and pages with wheels."""


class Rules(Protocol):
    """The functions that the module of each framework has."""

    def needs_index(self, matrix: Matrix, version: str) -> bool:
        """Returns whether imgtool must ask an index what the release needs."""

    def learn(self, matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
        """Returns the matrix with a row for the spec's release, and a warning about that row or an empty text.

        Raises FieldError if the index lacks the release.
        """

    def list_rows(self, matrix: Matrix, index: FileIndex | None) -> dict[str, tuple[Minor, Release]]:
        """Returns a row for each release, oldest first; without an index, only the rows of imgtool's table."""

    def notes_between(self, matrix: Matrix, before: str, after: str) -> tuple[str, ...]:
        """Returns notes for users who upgrade from one release to another."""

    def tabulate(self, release: str | None, settings: Settings) -> tuple[dict[str, Any], str]:
        """Returns what `imgtool compat` prints about all releases, or about one, as data and as text.

        Raises UsageError for an unknown release.
        """

    def package(self, request: Request, accelerator: Accelerator) -> str:
        """Returns the name of the distribution that a role installs."""

    def requirements(self, request: Request, accelerator: Accelerator) -> Iterator[str]:
        """Lists the framework and the packages that it needs but does not name in its metadata."""

    def constraints(self, request: Request, accelerator: Accelerator) -> Iterator[str]:
        """Lists upper limits for packages; pip cannot install, or Python cannot import, the release without them."""

    def check_spec(self, request: Request, accelerators: list[Accelerator]) -> list[Finding]:
        """Finds a platform, an accelerator or a TPU that does not fit the release."""

    def cuda_base(self, request: Request, python: str) -> FittingBase | None:
        """Chooses the nvidia/cuda tag for the base of GPU roles; None if CUDA comes from wheels."""

    def check_cuda_base(self, request: Request, image: BaseImage, field: str) -> list[Finding]:
        """Checks that an nvidia/cuda base contains the CUDA libraries that the wheels load."""

    def libraries(self, minor: Minor) -> tuple[str, ...]:
        """Lists the names of the shared libraries that the wheels load from the base."""

    def find_cuda(self, request: Request, image: BaseImage) -> tuple[str, str]:
        """Returns the versions of CUDA and cuDNN that a GPU role has if `image` is its base."""

    def check_gpus(self, request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
        """Finds settings that do not fit the GPUs of roles."""

    def check_lock(self, matrix: Matrix, variant: Variant, index: Index) -> list[Finding]:
        """Finds packages of a variant that no index has."""

    def check_wheels(
        self,
        spec: ImageSpec,
        variant: Variant,
        wheels: tuple[Wheel, ...],
        named: frozenset[str],
        packages: tuple[Package, ...],
    ) -> Variant:
        """Adds facts from the wheels to the variant.

        `named` are the packages that the requirements name, `packages` the wheels' metadata.

        Raises FieldError for wheels that do not fit together.
        """


def rules_of(framework: Framework) -> Rules:
    """Imports the module of a framework, so that a run loads only the module that it needs."""
    return cast("Rules", import_module(f"{__name__}.{framework.key}"))
