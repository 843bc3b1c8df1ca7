"""The functions of `frameworks.Rules` for JAX.

The metadata of JAX's wheels state all facts except which GPUs a CUDA version supports. CUDA always comes from wheels,
never from the base. Sources: METADATA of jax 0.10.2 and of its plug-ins; JAX's page
"Installation" and NVIDIA's page on compute capabilities (CUDA 13 begins with 7.5, JAX's wheels for CUDA 12 with 5.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from training_imgtool.base.errors import FieldError, TemporaryError, UsageError
from training_imgtool.base.settings import Settings
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.requirements import FIELD
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.frameworks.pythons import list_pythons
from training_imgtool.resolve.versions.base_image import BaseImage
from training_imgtool.resolve.versions.closure import Package, takes_python
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.versions.matrix import FittingBase, Matrix, Minor, Release, gpu_of
from training_imgtool.resolve.versions.request import INIT_PACKAGE, Request
from training_imgtool.resolve.versions.rules import Finding, usable_pythons
from training_imgtool.resolve.wheels.index.index import Index as FileIndex
from training_imgtool.resolve.wheels.store import WheelStore

_OLDEST_GPU = {"12": 52, "13": 75}  # compute capability times ten
_MOST_LISTED = 12
_MACHINES = ("x86_64", "aarch64")
_CUDA_WHEELS = ("nvidia-cuda-runtime", "nvidia-cudnn")
_GLIBC = re.compile(r"manylinux_(\d+_\d+)_")


def needs_index(matrix: Matrix, version: str) -> bool:
    """Returns True, because imgtool has no table of JAX's releases."""
    del matrix, version
    return True


def learn(matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
    """Returns the matrix with a row for the spec's release, made from the names and metadata of JAX's wheels.

    Raises FieldError if no index has the release, or if no index answers.
    """
    version = spec.release
    try:
        package = _read(index, "jax", version)
        if package is None:
            hint = "https://pypi.org/project/jax lists the releases"
            raise FieldError(f"the package index has no wheel of JAX {version}", field="jax", hint=hint)
        extras = ["", *{extra for role in spec.roles if (extra := _extra(spec, spec.accelerator_of(role)))}]
        built = [row for extra in extras for row in _list_built(package, extra)]
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
        for machine in _MACHINES
    }
    oldest = min(
        (match[1] for _, names in files.values() for name in names if (match := _GLIBC.search(name))), key=_number
    )
    release = Release(
        version=version,
        pythons=pythons["x86_64"],
        pythons_arm=pythons["aarch64"],
        packages=frozenset({"jax"}),
    )
    plain = (Requirement(line) for line in package.requires)
    minor = Minor(
        name=".".join(version.split(".")[:2]),
        source="METADATA",
        recommended=version,
        releases={version: release},
        cuda=f"{spec.cuda or 12}.0",
        cudnn="9.0",
        glibc=oldest.replace("_", "."),
        pip="20.3",
        requires={canonicalize_name(row.name): str(row.specifier) for row in plain if row.marker is None},
    )
    return replace(matrix, learned={"jax": (minor, release)}), ""


def notes_between(matrix: Matrix, before: str, after: str) -> tuple[str, ...]:
    """Returns nothing, because imgtool has no notes on JAX."""
    del matrix, before, after
    return ()


def lock_inputs(env: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG001  one signature
    """Returns none: no variable chooses packages."""
    return ()


def list_releases(index: FileIndex) -> list[dict[str, Any]]:
    """Lists the newest releases on an index, the newest first, each with the Pythons that its jaxlib supports."""
    names = [tuple(file.file for file in index.files(package)) for package in ("jax", "jaxlib")]
    versions = {file.split("-")[1] for file in names[0] if file.endswith(".whl")}
    newest = sorted(filter(_is_version, versions), key=Version, reverse=True)[:_MOST_LISTED]
    keys = dict(zip(("python", "python_arm64"), _MACHINES, strict=True))
    return [
        {"release": version} | {key: [*list_pythons(names[1], version, machine)] for key, machine in keys.items()}
        for version in newest
    ]


def tabulate(release: str | None, settings: Settings) -> tuple[dict[str, Any], str]:
    """Returns the newest releases on the package index, or the row of one; raises UsageError if the index lacks it."""
    rows = [row for row in list_releases(WheelStore(settings).index) if release in {None, row["release"]}]
    if release is not None and not rows:
        raise UsageError(f"JAX {release} is not among the newest {_MOST_LISTED} releases of the package index")
    texts = ((row["release"], *(", ".join(row[key]) or "none" for key in ("python", "python_arm64"))) for row in rows)
    lines = (f"{version:10}  x86-64: {pythons}  aarch64: {pythons_arm}\n" for version, pythons, pythons_arm in texts)
    return {"releases": rows}, "".join(lines)


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
    fitting = [version for version in versions if _is_version(version) and wanted.specifier.contains(version)]
    if not fitting:
        raise FieldError(f"the package index has no {requirement}, which JAX needs", field="jax")
    return max(fitting, key=Version), files


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def _number(glibc: str) -> tuple[int, ...]:
    return tuple(map(int, glibc.split("_")))


def _extra(spec: ImageSpec, accelerator: Accelerator) -> str:
    return {Accelerator.GPU: f"cuda{spec.cuda or 12}", Accelerator.TPU: "tpu"}.get(accelerator, "")


def package(request: Request, accelerator: Accelerator) -> str:
    """Returns the name of the distribution that a role installs; its extras add support for accelerators."""
    del request, accelerator
    return "jax"


def requirements(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists JAX with the accelerator's extra, and the package that contains the init."""
    extra = _extra(request.spec, accelerator)
    yield f"jax{f'[{extra}]' if extra else ''}=={request.release.version}"
    yield INIT_PACKAGE


def constraints(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists nothing, because the metadata of each release state the limits."""
    del request, accelerator
    yield from ()


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


def cuda_base(request: Request, python: str) -> FittingBase | None:
    """Returns None, because CUDA comes from wheels."""
    del request, python
    return None


def check_cuda_base(request: Request, image: BaseImage, field: str) -> list[Finding]:
    """Finds nothing, because JAX's wheels do not use the CUDA of a base."""
    del request, image, field
    return []


def libraries(minor: Minor) -> tuple[str, ...]:
    """Lists nothing, because JAX's wheels contain the libraries that they load."""
    del minor
    return ()


def cuda(request: Request, image: BaseImage) -> tuple[str, str]:
    """Returns the major versions of CUDA and cuDNN; `check_wheels` reads the full versions from the wheels."""
    del image
    return request.minor.cuda, request.minor.cudnn


def check_gpus(request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
    """Finds GPUs that are too old for the wheels' CUDA."""
    del python
    major, findings = cuda.partition(".")[0], []
    for role in roles:
        gpus = request.spec.roles[role].gpus
        gpu = gpu_of(gpus.type, request.matrix) if gpus else None
        if gpu is not None and gpu.compute < _OLDEST_GPU[major]:
            message = f"JAX's wheels for CUDA {major} have no code for {gpu.name}"
            hint = 'cuda: "12"' if gpu.compute >= _OLDEST_GPU["12"] else "a newer GPU"
            findings.append(Finding(f"roles.{role}.gpus.type", message, hint))
    return findings


def check_lock(matrix: Matrix, variant: Variant, index: Index) -> list[Finding]:
    """Finds nothing, because indexes have everything that JAX needs."""
    del matrix, variant, index
    return []


def check_wheels(spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...], named: frozenset[str]) -> Variant:
    """Returns the variant with the CUDA and cuDNN of its wheels.

    Raises FieldError for Keras 2, which does not support JAX, and for a TensorFlow wheel that no requirement names.
    """
    del spec
    versions = {wheel.name: wheel.version for wheel in wheels}
    if (keras := versions.get("keras", "3")).partition(".")[0] in {"0", "1", "2"}:
        raise FieldError(f"Keras {keras} does not run on JAX", field=FIELD, hint="keras>=3 in the requirements")
    for name in (*TENSORFLOW.packages, "tf-keras"):
        if name in versions and name not in named:
            message = f"another requirement brings {name} {versions[name]}, which JAX does not need"
            hint = f"name {name} in the requirements if the program imports it; if not, remove the one that needs it"
            raise FieldError(message, field=FIELD, hint=hint)
    if variant.cuda is None:
        return variant
    found = {word: next((v for n, v in versions.items() if n.startswith(word)), None) for word in _CUDA_WHEELS}
    runtime, cudnn = (".".join(version.split(".")[:3]) if version else None for version in found.values())
    return replace(variant, cuda=runtime or variant.cuda, cudnn=cudnn or variant.cudnn)
