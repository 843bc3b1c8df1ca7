"""`imgtool compat` prints the matrix, as text for people or as data for programs. Pure."""

from __future__ import annotations

from typing import Any

from training_imgtool.base.errors import FieldError, UsageError
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.frameworks.tensorflow.install import package
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, has_cuda_wheels, version_key
from training_imgtool.resolve.versions.request import Request
from training_imgtool.resolve.versions.resolve import resolve
from training_imgtool.resolve.versions.rules import usable_pythons

_HEAD = ("TENSORFLOW", "PYTHON", "CUDA", "CUDNN", "GPU BASE", "CPU", "GPU", "TPU")
_PLATFORM = "linux/amd64"


def as_text(matrix: Matrix, release: str | None = None) -> str:
    """Formats one line per minor, or all facts about one `release` (2.15 or 2.15.1).

    Raises UsageError for a release that is not in the matrix.
    """
    if release is not None:
        return "".join(_details(matrix, minor, of_minor) for minor, of_minor in chosen_releases(matrix, release))
    rows: list[tuple[str, ...]] = [_HEAD]
    for minor in matrix.minors.values():
        recommended = minor.releases[minor.recommended]
        packages = (_package(matrix, minor, recommended, kind) for kind in Accelerator)
        base = f"nvidia/cuda:{minor.bases[0].tag}" if minor.bases else "none"
        pythons = _span(usable_pythons(recommended, _PLATFORM))
        rows.append((recommended.version, pythons, minor.cuda, minor.cudnn, base, *packages))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", f"matrix {matrix.version}; imgtool compat 2.15 shows one minor with its sources", ""])


def as_data(matrix: Matrix, release: str | None = None) -> dict[str, Any]:
    """Returns `version`, `sources` and `releases` for `--json`, one row per patch release.

    Raises UsageError for a release that is not in the matrix.
    """
    chosen = (
        chosen_releases(matrix, release)
        if release is not None
        else [(minor, of_minor) for minor in matrix.minors.values() for of_minor in minor.releases.values()]
    )
    return {
        "version": matrix.version,
        "sources": dict(matrix.sources),
        "releases": [_row(matrix, minor, of_minor) for minor, of_minor in chosen],
    }


def chosen_releases(matrix: Matrix, release: str) -> list[tuple[Minor, Release]]:
    """Selects the rows of a minor (2.15) or of one release (2.15.1); raises UsageError when the matrix has none."""
    if release in matrix.minors:
        minor = matrix.minors[release]
        return [(minor, of_minor) for of_minor in minor.releases.values()]
    try:
        return [matrix.release(release, TENSORFLOW)]
    except FieldError as error:
        raise UsageError(error.message, hint=error.hint) from error


def _row(matrix: Matrix, minor: Minor, release: Release) -> dict[str, Any]:
    packages = {str(kind): _package(matrix, minor, release, kind) for kind in Accelerator}
    return {
        "release": release.version,
        "date": release.date,
        "recommended": release.version == minor.recommended,
        "python": list(usable_pythons(release, _PLATFORM)),
        "python_arm64": list(usable_pythons(release, "linux/arm64")),
        "packages": {kind: name for kind, name in packages.items() if name != "-"},
        "cuda": minor.cuda,
        "cudnn": minor.cudnn,
        "compute": list(minor.compute),
        "constraints": [*minor.constraints, *release.constraints],
        "add": list(minor.add),
        "and_cuda": has_cuda_wheels(minor, release),
        "bases": [
            {"image": f"nvidia/cuda:{base.tag}", "apt": list(base.apt), "status": matrix.cuda_images[base.tag].status}
            for base in minor.bases
        ],
        "no_base": minor.no_base,
        "chosen": {str(kind): base for kind in Accelerator if (base := _base(matrix, release, kind)) is not None},
        "notes": list(minor.notes),
        "source": minor.source.split(),
    }


def _details(matrix: Matrix, minor: Minor, release: Release) -> str:
    mark = " (recommended)" if release.version == minor.recommended else ""
    lines = [
        f"TensorFlow {release.version}{mark}, {release.date}",
        f"  python       {', '.join(usable_pythons(release, _PLATFORM))}",
    ]
    for kind in Accelerator:
        name = _package(matrix, minor, release, kind)
        if name != "-":
            lines.append(f"  {kind}          {name} on {_base(matrix, release, kind) or 'no base that fits'}")
    if has_cuda_wheels(minor, release):
        lines.append(f"  gpu          tensorflow on {_base(matrix, release, Accelerator.CPU)} with cuda_from: wheels,")
        lines.append("               which needs no Docker Engine and makes smaller images")
    lines.append(f"  built with   CUDA {minor.cuda}, cuDNN {minor.cudnn}; {' '.join(minor.compute) or 'GPUs unknown'}")
    for base in minor.bases:
        image = matrix.cuda_images[base.tag]
        inside = f"cuDNN {image.cudnn}" if image.cudnn else f"apt {' '.join(base.apt)}"
        lines.append(f"  base         nvidia/cuda:{base.tag} ({inside}, {image.status})")
    if minor.no_base:
        lines.append(f"  base         none: {minor.no_base}")
    held = [*minor.constraints, *release.constraints, *(f"+{name}" for name in minor.add)]
    lines.append(f"  held back    {', '.join(held) or 'nothing'}")
    lines += [f"  and-cuda     not with {what}: {why}" for what, why in minor.and_cuda_broken.items()]
    lines += [f"  note         {note}" for note in minor.notes]
    lines += [f"  source       {word}: {matrix.sources[word]}" for word in minor.source.split()]
    return "\n".join([*lines, "", ""])


def _package(matrix: Matrix, minor: Minor, release: Release, kind: Accelerator) -> str:
    if kind is Accelerator.TPU and "tensorflow-tpu" not in release.packages and version_key(minor.name) >= (2, 16):
        return "-"
    return package(Request(_spec(release, kind), matrix, minor, release), kind)


def _base(matrix: Matrix, release: Release, kind: Accelerator) -> str | None:
    try:
        return resolve(_spec(release, kind), matrix).variants[0].base
    except FieldError:
        return None


def _spec(release: Release, kind: Accelerator) -> ImageSpec:
    return ImageSpec(name="compat", tensorflow=release.version, accelerator=kind, roles={Role.MASTER: RoleSpec()})


def _span(pythons: tuple[str, ...]) -> str:
    return pythons[0] if len(pythons) == 1 else f"{pythons[0]}-{pythons[-1]}"
