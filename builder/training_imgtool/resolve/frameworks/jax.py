"""The functions of `frameworks.Rules` for JAX.

The metadata of JAX's wheels state all facts except which GPUs a CUDA version supports. CUDA always comes from wheels,
never from the base. Sources: METADATA of jax 0.10.2 and of its plug-ins; JAX's page
"Installation" and NVIDIA's page on compute capabilities (CUDA 13 begins with 7.5, JAX's wheels for CUDA 12 with 5.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from training_imgtool.base.errors import FieldError, TemporaryError
from training_imgtool.base.settings import Settings
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.requirements import FIELD
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.frameworks.by_wheels import (  # noqa: F401  functions of `Rules`
    check_cuda_base,
    check_lock,
    constraints,
    cuda_base,
    find_cuda,
    libraries,
    needs_index,
    notes_between,
)
from training_imgtool.resolve.frameworks.pythons import (
    MACHINES,
    find_glibc,
    is_version,
    list_newest,
    list_pythons,
    list_versions,
    make_row,
    print_newest,
    refuse_others,
    suggest_releases,
    with_cuda,
)
from training_imgtool.resolve.versions.closure import Package, takes_python
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, load_matrix, version_key
from training_imgtool.resolve.versions.request import INIT_PACKAGE, Request
from training_imgtool.resolve.versions.rules import Finding, usable_pythons
from training_imgtool.resolve.wheels.index.index import Index as FileIndex
from training_imgtool.resolve.wheels.store import WheelStore

_OLDEST_GPU = {"12": 52, "13": 75}  # compute capability times ten
_CPU = "cpu"  # of the extras by which releases before 0.4.30 require jaxlib
_FIRST_FREE = Version("0.4.30")


def learn(matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
    """Returns the matrix with a row for the spec's release, made from the names and metadata of JAX's wheels.

    Raises FieldError if no index has the release, or if no index answers.
    """
    version = spec.release
    try:
        package = _read(index, "jax", version)
        if package is None:
            hint = suggest_releases(index.list_files("jax"), version)
            raise FieldError(f"the package index has no wheel of JAX {version}", field="jax", hint=hint)
        extras = ["", *{extra for role in spec.roles if (extra := _extra(spec, spec.accelerator_of(role)))}]
        has_jaxlib = any(row.name == "jaxlib" for row in _list_built(package, ""))
        if not has_jaxlib and (none := [extra for extra in (_CPU, *extras[1:]) if not [*_list_built(package, extra)]]):
            hint = "0.4.30, or a newer release"
            raise FieldError(f"JAX {version} has no extra {none[0]} that installs jaxlib", field="jax", hint=hint)
        built = [
            row for extra in (extras if has_jaxlib else [*extras[1:], _CPU]) for row in _list_built(package, extra)
        ]
        files = {row: _newest(index, row) for row in dict.fromkeys(map(str, built))}
    except TemporaryError as error:
        raise FieldError(f"JAX {version} cannot be resolved: {error.message}", field="jax", hint=error.hint) from error
    pythons = {
        machine: tuple(
            python
            for python in matrix.python_images
            if takes_python(package.requires_python, python)
            and all(python in list_pythons(names, newest, machine) for newest, names in files.values())
        )
        for machine in MACHINES
    }
    glibc = max((find_glibc(names, newest) for newest, names in files.values()), key=version_key)
    row = make_row("jax", version, pythons, cuda=f"{spec.cuda or 12}.0", glibc=glibc, metadata=package)
    return replace(matrix, learned={"jax": row}), ""


def list_rows(matrix: Matrix, index: FileIndex | None) -> dict[str, tuple[Minor, Release]]:
    """Returns the row of each release on an index, oldest first; the rows contain no requirements.

    A release has the Pythons of the newest jaxlib of its minor that is no newer, because some have none of their own;
    but releases before 0.4.30 require the jaxlib of the same version.
    """
    if index is None:
        return {}
    names = [tuple(file.file for file in index.files(package) if file.yanked is None) for package in ("jax", "jaxlib")]
    versions, of_jaxlib = map(list_versions, names)
    rows = {}
    for version in (version for version in versions if not version.is_prerelease):
        own = [one for one in of_jaxlib if one <= version and one.release[:2] == version.release[:2]][-1:]
        if version < _FIRST_FREE and own != [version]:
            continue
        found = {machine: list_pythons(names[1], str(one), machine) for one in own for machine in MACHINES}
        pythons = {key: tuple(filter(matrix.python_images.__contains__, found.get(key, ()))) for key in MACHINES}
        rows[str(version)] = make_row("jax", str(version), pythons)
    return rows


def list_releases(index: FileIndex) -> list[dict[str, Any]]:
    """Lists the newest releases on an index, the newest first, each with the Pythons that its jaxlib supports."""
    return list_newest(list_rows(load_matrix(), index))


def tabulate(release: str | None, settings: Settings) -> tuple[dict[str, Any], str]:
    """Returns the newest releases on the package index, or the row of one; raises UsageError if the index lacks it."""
    return print_newest(list_releases(WheelStore(settings).index), release, "JAX")


def _read(index: Index, name: str, version: str) -> Package | None:
    files = [file for file in index.list_files(name) if file.startswith(f"{name}-{version}-")]
    return index.read(files[0]) if files else None


def _list_built(package: Package, extra: str) -> Iterator[Requirement]:
    """Yields JAX's requirements with an extra whose wheels depend on the Python version: JAX's packages, libtpu."""
    environment = {**marker_environment("3.11", "linux/amd64"), "extra": extra}
    for requirement in map(Requirement, package.requires):
        applies = requirement.marker is None or requirement.marker.evaluate(environment)
        if applies and requirement.name.startswith(("jax", "libtpu")):
            yield requirement


def _newest(index: Index, requirement: str) -> tuple[str, tuple[str, ...]]:
    """Returns the newest version that a requirement allows, and the names of the package's files."""
    wanted = Requirement(requirement)
    files = index.list_files(wanted.name)
    versions = {file.split("-")[1] for file in files if file.endswith(".whl")}
    fitting = [version for version in versions if is_version(version) and wanted.specifier.contains(version)]
    if not fitting:
        raise FieldError(f"the package index has no {requirement}, which JAX needs", field="jax")
    return max(fitting, key=Version), files


def _extra(spec: ImageSpec, accelerator: Accelerator) -> str:
    return {Accelerator.GPU: f"cuda{spec.cuda or 12}", Accelerator.TPU: "tpu"}.get(accelerator, "")


def package(request: Request, accelerator: Accelerator) -> str:
    """Returns the name of the distribution that a role installs; its extras add support for accelerators."""
    del request, accelerator
    return "jax"


def requirements(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists JAX with the accelerator's extra, and the package that contains the init."""
    extra = _extra(request.spec, accelerator) or ("" if "jaxlib" in request.minor.requires else _CPU)
    yield f"jax{f'[{extra}]' if extra else ''}=={request.release.version}"
    yield INIT_PACKAGE


def check_spec(request: Request, accelerators: list[Accelerator]) -> list[Finding]:
    """Finds a platform without wheels, and keys that only TensorFlow supports."""
    spec, findings = request.spec, []
    if not usable_pythons(request.release, spec.platform):
        extras = sorted({_extra(spec, accelerator) or "cpu" for accelerator in accelerators})
        message = f"{request.title} has no wheels with {', '.join(extras)} for {spec.platform}"
        findings.append(Finding("platform", message, "linux/amd64, or another release"))
    for role, of_role in spec.roles.items():
        if of_role.tpu and of_role.tpu.tf_version:
            findings.append(Finding(f"roles.{role}.tpu.tf_version", "is TensorFlow's", "leave it out"))
    return findings


def check_gpus(request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
    """Finds GPUs that are too old for the wheels' CUDA."""
    del python
    major, findings = cuda.partition(".")[0], []
    for role, gpu in request.gpus_of(roles):
        if gpu.compute < _OLDEST_GPU[major]:
            message = f"JAX's wheels for CUDA {major} have no code for {gpu.name}"
            hint = 'cuda: "12"' if gpu.compute >= _OLDEST_GPU["12"] else "a newer GPU"
            findings.append(Finding(f"roles.{role}.gpus.type", message, hint))
    return findings


def check_wheels(
    spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...], named: frozenset[str], packages: tuple[Package, ...]
) -> Variant:
    """Returns the variant with the CUDA and cuDNN of its wheels.

    Raises FieldError for Keras 2, which does not support JAX, and for a TensorFlow wheel that no requirement names.
    """
    del spec
    versions = {wheel.name: wheel.version for wheel in wheels}
    if (keras := versions.get("keras", "3")).partition(".")[0] in {"0", "1", "2"}:
        raise FieldError(f"Keras {keras} does not run on JAX", field=FIELD, hint="keras>=3 in the requirements")
    part = () if named & {*TENSORFLOW.packages} else ("tf-keras",)  # of a TensorFlow that the requirements name
    refuse_others("JAX", (*TENSORFLOW.packages, *part), wheels, named, packages)
    return with_cuda(variant, versions)
