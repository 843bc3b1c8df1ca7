"""Makes a row of the matrix for a release newer than imgtool's table, from the release's wheels.

imgtool reads the names and METADATA of the release's wheels. All other facts come from the nearest earlier release.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from training_imgtool.base.errors import FieldError, TemporaryError
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.model.spec import ImageSpec
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.frameworks.pythons import list_pythons, suggest_releases
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.versions.matrix import FittingBase, Matrix, Minor, Release, lowest, version_key

_EXTRA = "and-cuda"
_NO_BASE = "imgtool's table does not know which nvidia/cuda tag has its CUDA and cuDNN"


def needs_index(matrix: Matrix, version: str) -> bool:
    """Returns whether a release is newer than every release of its minor in the table, or than the whole table."""
    minor = matrix.minors.get(".".join(version.split(".")[:2])) or [*matrix.minors.values()][-1]
    return Version(version) > max(map(Version, minor.releases))


def notes_between(matrix: Matrix, before: str, after: str) -> tuple[str, ...]:
    """Returns the notes on every minor version after that of `before`, up to and including that of `after`."""
    low, high = version_key(before)[:2], version_key(after)[:2]
    minors = (minor for name, minor in matrix.minors.items() if low < version_key(name) <= high)
    return tuple(f"TensorFlow {minor.name}: {note}" for minor in minors for note in minor.notes)


def learn(matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
    """Returns the matrix with a row made from the wheels of the spec's release, and a warning that the row is untested.

    Raises FieldError if no index has the release, or if no index answers.
    """
    version, table = spec.release, f"imgtool's table of {matrix.version}"
    try:
        names = {name: index.list_files(name) for name in TENSORFLOW.packages}
        fitting = [file for file in names["tensorflow"] if list_pythons((file,), version, "x86_64")]
        if not fitting:
            message = f"neither {table} nor the package index has TensorFlow {version}"
            hint = suggest_releases(names["tensorflow"], version) or "imgtool compat lists the releases in the table"
            raise FieldError(message, field="tensorflow", hint=hint)
        requires = index.read(fitting[0]).requires
    except TemporaryError as error:
        message = f"{table} has no TensorFlow {version}, and {error.message}"
        raise FieldError(message, field="tensorflow", hint=error.hint) from error
    note = f"TensorFlow {version} is newer than {table}: its Pythons, CUDA and bounds come from its wheel's metadata"
    return add_release(matrix, version, names, requires), f"{note}, and nobody has tried them"


def add_release(matrix: Matrix, version: str, files: Mapping[str, tuple[str, ...]], requires: Iterable[str]) -> Matrix:
    """Returns the matrix with a row for a release.

    Args:
        matrix: the table.
        version: the release to add; the table does not have it.
        files: the names of the files on the index, by package; `tensorflow` is one of them.
        requires: the Requires-Dist lines of tensorflow's wheel.
    """
    pythons = list_pythons(files["tensorflow"], version, "x86_64")
    release = Release(
        version=version,
        pythons=pythons,
        pythons_arm=list_pythons(files["tensorflow"], version, "aarch64"),
        packages=frozenset(name for name, names in files.items() if list_pythons(names, version, "x86_64")),
    )
    plain, cuda = (_read_bounds(requires, pythons[-1], extra) for extra in ("", _EXTRA))
    name = ".".join(version.split(".")[:2])
    nearest = max(
        (minor for minor in matrix.minors.values() if version_key(minor.name) <= version_key(name)),
        key=lambda minor: version_key(minor.name),
    )
    minor = _derive_minor(nearest, plain, {key: pin for key, pin in cuda.items() if key not in plain})
    minor = replace(minor, name=name, recommended=version, releases={**matrix.minors.get(name, minor).releases})
    minor = replace(minor, releases={**minor.releases, version: release})
    return replace(matrix, minors={**matrix.minors, name: minor})


def _derive_minor(nearest: Minor, requires: Mapping[str, str], and_cuda: Mapping[str, str]) -> Minor:
    cuda = _read_pin(and_cuda, "nvidia-cuda-runtime") or nearest.cuda
    cudnn = _read_pin(and_cuda, "nvidia-cudnn") or nearest.cudnn
    fits = (cuda, cudnn) == (nearest.cuda, nearest.cudnn)
    bases: tuple[FittingBase, ...] = nearest.bases if fits else ()
    return replace(
        nearest,
        source="METADATA",
        cuda=cuda,
        cudnn=cudnn,
        compute=(),
        constraints=tuple(row for row in nearest.constraints if not _is_bounded(Requirement(row).name, requires)),
        add=tuple(row for row in nearest.add if canonicalize_name(Requirement(row).name) not in requires),
        requires=requires,
        and_cuda=and_cuda,
        and_cuda_broken={},
        bases=bases,
        no_base=nearest.no_base if fits else _NO_BASE,
        notes=(),
    )


def _read_bounds(requires: Iterable[str], python: str, extra: str) -> dict[str, str]:
    """Maps the canonical names of the requirements that apply on Linux with `extra` to their version bounds."""
    bounds: dict[str, str] = {}
    for line in requires:
        try:
            requirement = Requirement(line)
            environment = {**marker_environment(python, "linux/amd64"), "extra": extra}
            applies = requirement.marker is None or requirement.marker.evaluate(environment)
        except (ValueError, UndefinedComparison, UndefinedEnvironmentName):
            continue
        if applies:
            bounds[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return bounds


def _is_bounded(name: str, requires: Mapping[str, str]) -> bool:
    """Returns whether the metadata itself limits a package, so that an older release's constraint is obsolete."""
    return any(part.startswith(("<", "==", "~=")) for part in requires.get(canonicalize_name(name), "").split(","))


def _read_pin(and_cuda: Mapping[str, str], start: str) -> str | None:
    """Finds the requirement whose name begins with `start`; returns its oldest release, as MAJOR.MINOR."""
    pins = (pin for name, pin in and_cuda.items() if name.startswith(start))
    pin = next((pin for pin in pins if ">=" in pin or "==" in pin), None)
    return ".".join(lowest(pin).split(".")[:2]) if pin else None
