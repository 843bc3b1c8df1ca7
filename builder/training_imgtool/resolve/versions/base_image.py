"""Finds the system, the Python and the CUDA of a base image from the image's name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from training_imgtool.base.reference import parse_reference
from training_imgtool.resolve.versions.matrix import CudaImage, Matrix

_CUDA_TAG = re.compile(
    r"(?P<cuda>\d+\.\d+(?:\.\d+)?)-(?:(?P<cudnn>cudnn\d*)-)?(?P<flavour>base|runtime|devel)-(?P<os>[a-z]+[\d.]+)\Z"
)
_PYTHON_TAG = re.compile(r"(?P<python>\d+\.\d+)(?:\.\d+)?(?:-(?:slim-)?(?P<release>[a-z]+)|-slim)?\Z")
_RELEASES = {"bullseye": "debian11", "bookworm": "debian12", "trixie": "debian13"}
_CODENAMES = {"bionic": "18.04", "focal": "20.04", "jammy": "22.04", "noble": "24.04"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """The facts about a base image that follow from its name.

    Attributes:
        name: the name as given.
        is_cuda: whether it is an nvidia/cuda image, also from a mirror.
        is_python: whether it is an official Python image, which has its Python in /usr/local.
        cuda: the content of the image if it is an nvidia/cuda tag of the matrix.
        tag: the tag, or None if the name has only a digest.
        flavour: base, runtime or devel, for nvidia/cuda.
        os: the system, such as ubuntu22.04, or None.
        python: the Python in the image, or in its system's packages; None if unknown.
    """

    name: str
    is_cuda: bool = False
    is_python: bool = False
    cuda: CudaImage | None = None
    tag: str | None = None
    flavour: str | None = None
    os: str | None = None
    python: str | None = None

    @property
    def has_python(self) -> bool:
        """Whether imgtool knows enough about the base to check a Python."""
        return self.python is not None


def describe(name: str, matrix: Matrix) -> BaseImage:
    """Derives the facts about a base image from `name`. Ignores the first parts of the path, so that mirrors work, too.

    Raises InvalidReferenceError if `name` is not the name of an image.
    """
    reference = parse_reference(name)
    before_digest = name.partition("@")[0]
    tag = before_digest[before_digest.rfind("/") + 1 :].partition(":")[2] or None
    parts = reference.repository.path.split("/")
    if parts[-2:] == ["nvidia", "cuda"]:
        return _cuda(name, tag, matrix)
    if parts[-1] == "python":
        return _python(name, tag)
    if parts[-1] in {"ubuntu", "debian"} and tag:
        os = _system(parts[-1], tag)
        if os in matrix.systems:
            return BaseImage(name=name, tag=tag, os=os, python=matrix.systems[os].python)
    return BaseImage(name=name, tag=tag)


def _cuda(name: str, tag: str | None, matrix: Matrix) -> BaseImage:
    match = _CUDA_TAG.match(tag or "")
    if match is None:
        return BaseImage(name=name, tag=tag, is_cuda=True)
    os, flavour = match["os"], match["flavour"]
    cudnn = f"{match['cudnn']}-" if match["cudnn"] else ""
    system = matrix.systems.get(os)
    return BaseImage(
        name=name,
        is_cuda=True,
        cuda=matrix.cuda_images.get(f"{match['cuda']}-{cudnn}runtime-{os}"),
        tag=tag,
        flavour=flavour,
        os=os if system else None,
        python=system.python if system else None,
    )


def _python(name: str, tag: str | None) -> BaseImage:
    match = _PYTHON_TAG.match(tag or "")
    if match is None:
        return BaseImage(name=name, tag=tag, is_python=True)
    return BaseImage(
        name=name, tag=tag, is_python=True, os=_RELEASES.get(match["release"] or ""), python=match["python"]
    )


def _system(name: str, tag: str) -> str:
    head = tag.partition("-")[0]
    if name == "ubuntu":
        return f"ubuntu{_CODENAMES.get(head, head)}"
    return _RELEASES.get(head, f"debian{head.partition('.')[0]}")
