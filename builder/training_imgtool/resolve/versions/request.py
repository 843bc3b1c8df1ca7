"""The input that all steps of resolving a spec share."""

from __future__ import annotations

from dataclasses import dataclass

from training_imgtool.model.frameworks import Framework
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release

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
