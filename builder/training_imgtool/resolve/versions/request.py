"""The input that all steps of resolving a spec share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from training_imgtool.model.frameworks import Framework
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.resolve.versions.matrix import Gpu, Matrix, Minor, Release, gpu_of

WHEELS = "wheels"
INIT_PACKAGE = "dumb-init==1.2.5.post1"
"""The package with the init (`model.spec.INIT`), the parent process of programs: one static program of 18 kB."""


@dataclass(frozen=True, slots=True)
class Request:
    """A spec, and the rows of the matrix for its release."""

    spec: ImageSpec
    matrix: Matrix
    minor: Minor
    release: Release

    @property
    def wheels(self) -> bool:
        """Whether CUDA comes from wheels."""
        return self.spec.cuda_from == WHEELS

    @property
    def framework(self) -> Framework:
        """The framework of the images."""
        return self.spec.framework

    @property
    def title(self) -> str:
        """The framework's name and release, for people."""
        return f"{self.framework.title} {self.release.version}"

    def gpus_of(self, roles: tuple[Role, ...]) -> Iterator[tuple[Role, Gpu]]:
        """Yields the roles whose GPUs the matrix knows, each with its GPU."""
        for role in roles:
            gpus = self.spec.roles[role].gpus
            if gpus and (gpu := gpu_of(gpus.type, self.matrix)):
                yield role, gpu
