"""The functions of `frameworks.Rules` that JAX and PyTorch share: their wheels state all facts, and bring CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from training_imgtool.model.lock import Variant
from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.versions.base_image import BaseImage
from training_imgtool.resolve.versions.matrix import FittingBase, Matrix, Minor
from training_imgtool.resolve.versions.request import Request
from training_imgtool.resolve.versions.rules import Finding


def needs_index(matrix: Matrix, version: str) -> bool:
    """Returns True, because imgtool has no table of the releases."""
    del matrix, version
    return True


def notes_between(matrix: Matrix, before: str, after: str) -> tuple[str, ...]:
    """Returns nothing, because imgtool has no notes on the releases."""
    del matrix, before, after
    return ()


def constraints(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists nothing, because the metadata of each release state the limits."""
    del request, accelerator
    yield from ()


def cuda_base(request: Request, python: str) -> FittingBase | None:
    """Returns None, because CUDA comes from wheels."""
    del request, python
    return None


def check_cuda_base(request: Request, image: BaseImage, field: str) -> list[Finding]:
    """Finds nothing, because the wheels do not use the CUDA of a base."""
    del request, image, field
    return []


def libraries(minor: Minor) -> tuple[str, ...]:
    """Lists nothing, because the wheels contain the libraries that they load."""
    del minor
    return ()


def find_cuda(request: Request, image: BaseImage) -> tuple[str, str]:
    """Returns the release's CUDA and cuDNN; `check_wheels` reads the full versions from the wheels."""
    del image
    return request.minor.cuda, request.minor.cudnn


def check_lock(matrix: Matrix, variant: Variant, index: Index) -> list[Finding]:
    """Finds nothing, because `learn` has found the wheels that a variant needs."""
    del matrix, variant, index
    return []
