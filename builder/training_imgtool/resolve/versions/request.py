"""What every step of resolving a spec needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from training_imgtool.model.frameworks import Framework
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release

WHEELS = "wheels"
INIT_PACKAGE = "dumb-init==1.2.5.post1"
"""The init that programs start below, `model.spec.INIT`: one static program of 18 kB for each architecture."""


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
        """What the images train with."""
        return self.spec.framework

    @property
    def title(self) -> str:
        """The framework and its release, for people."""
        return f"{self.framework.title} {self.release.version}"
