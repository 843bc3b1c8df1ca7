"""The functions of `frameworks.Rules` for PyTorch.

The names and metadata of PyTorch's wheels state all facts except which GPUs a build supports. A release has several
builds. PyPI has one for each machine type, without a local version; PyTorch's own indexes have a CPU build (`+cpu`) and
builds for versions of CUDA (`+cu126`). Source: METADATA of torch 2.4.1 to 2.15.0; PyTorch's list of the GPUs in its
builds (.ci/manywheel/build_cuda.sh).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from training_imgtool.base.errors import FieldError, TemporaryError
from training_imgtool.base.settings import Settings
from training_imgtool.model.frameworks import JAX, TENSORFLOW, TORCH
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
    list_newest,
    list_pythons,
    list_versions,
    make_row,
    print_newest,
    refuse_others,
    suggest_releases,
    with_cuda,
)
from training_imgtool.resolve.versions.closure import Package, is_same_version
from training_imgtool.resolve.versions.markers import marker_environment
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, load_matrix, version_key
from training_imgtool.resolve.versions.request import INIT_PACKAGE, Request
from training_imgtool.resolve.versions.rules import Finding, raise_errors, usable_pythons
from training_imgtool.resolve.wheels.index.index import Index as FileIndex
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.wheel_tags import machine_of

_FIRST = "1.13"  # older wheels contain CUDA, but their metadata do not say so
_OLDEST_GPU = (((13, 0), 75), ((12, 8), 70), ((11, 0), 37))  # CUDA, then compute capability times ten
_OLDEST_CUDA = {120: (12, 8), 100: (12, 8), 90: (11, 8)}  # by compute capability times ten, the highest first
_CUDA = re.compile(r"(?!nvidia-ml-py\Z)(?:nvidia-.+|cuda-(?:bindings|pathfinder|toolkit)|triton|cupy-cuda.+)")
_GENERATION = re.compile(r".*(?:-cu|cuda)(\d{2})(?!\d)")
_BUILD = re.compile(r".+\+(cpu|cu\d+)")


def learn(matrix: Matrix, spec: ImageSpec, index: Index) -> tuple[Matrix, str]:
    """Returns the matrix with a row for the spec's release: the build of each accelerator, from names and metadata.

    Raises FieldError for roles that cannot work together, and if an index lacks a build that a role needs.
    """
    raise_errors(_check_roles(spec))
    version, machine = spec.release, machine_of(spec.platform)
    usual = index.list_files(TORCH.key)
    plain = _select(usual, version, machine)
    package = index.read(plain[0]) if plain else None
    builds, glibcs, pythons, cuda, cudnn = dict[str, str](), list[str](), set(matrix.python_images), "", "9.0"
    for accelerator in dict.fromkeys(map(spec.accelerator_of, spec.roles)):
        builds[accelerator] = build = _choose_build(spec, accelerator, package)
        local = f"{version}+{build}" if build else version
        files = (_select(usual, local, machine) if build else plain) or _find_files(spec, build, usual, index)
        glibcs.append(find_glibc(files, local))
        pythons &= {*list_pythons(files, local, machine)}
        if build:
            package = index.read(files[0])
        if accelerator is Accelerator.GPU and package:
            cuda = f"{build[2:-1]}.{build[-1]}" if build else _read_cuda(package, spec.platform)
            cudnn = next(_list_versions(package, spec.platform, "nvidia-cudnn-"), cudnn)
    usable = tuple(sorted(pythons, key=version_key))
    row = make_row(
        TORCH.key,
        version,
        dict.fromkeys(MACHINES, usable),
        cuda=cuda,
        cudnn=cudnn,
        glibc=max(glibcs, key=version_key),
        metadata=package,
        builds=builds,
    )
    return replace(matrix, learned={TORCH.key: row}), ""


def list_rows(matrix: Matrix, index: FileIndex | None) -> dict[str, tuple[Minor, Release]]:
    """Returns the row of each release on an index, oldest first; the rows contain no requirements."""
    files = [file.file for file in index.files(TORCH.key) if file.yanked is None] if index else []
    rows = {}
    for version in (version for version in list_versions(files) if not version.is_prerelease):
        found = {machine: list_pythons(files, str(version), machine) for machine in MACHINES}
        pythons = {key: tuple(filter(matrix.python_images.__contains__, found[key])) for key in MACHINES}
        if any(pythons.values()) and not version.local and version >= Version(_FIRST):
            rows[str(version)] = make_row(TORCH.key, str(version), pythons)
    return rows


def _choose_build(spec: ImageSpec, accelerator: Accelerator, plain: Package | None) -> str:
    """Chooses an accelerator's build; an empty text is that of PyPI, whose metadata are `plain`."""
    cuda = _read_cuda(plain, spec.platform) if plain else ""
    if accelerator is Accelerator.CPU:
        return "cpu" if cuda or plain is None else ""
    if plain is not None and not cuda and not spec.cuda:
        message = f"PyPI's wheel of PyTorch {spec.release} for {spec.platform} computes on the CPU alone"
        other = _read_cuda(plain, "linux/amd64") or "12.6"
        raise FieldError(message, field=TORCH.key, hint=f'cuda: "{other}" chooses a build of PyTorch\'s own index')
    return f"cu{spec.cuda.replace('.', '')}" if spec.cuda not in {None, cuda} else ""


def _find_files(spec: ImageSpec, build: str, usual: tuple[str, ...], index: Index) -> tuple[str, ...]:
    """Lists the wheels on the index for a build; raises FieldError if there are none, and TemporaryError."""
    local, where = f"{spec.release}+{build}", f"PyTorch {spec.release} for {spec.platform}"
    try:
        listed = index.list_files(TORCH.key, build) if build else ()
    except TemporaryError as error:
        hint = "IMGTOOL_TORCH_INDEX names a mirror of PyTorch's indexes, and find-links a folder with the wheel"
        raise TemporaryError(f"{where} needs the build {build}, and {error.message}", hint=hint) from error
    if files := _select(listed, local, machine_of(spec.platform)):
        return files
    found = sorted({match[1] for file in usual if (match := _BUILD.match("-".join(file.split("-")[:2])))})
    seen = f"the builds here are {', '.join(found)}; " if found else ""
    others = suggest_releases(usual, spec.release) or "https://pypi.org/project/torch lists the releases"
    hint = f"{seen}{others}; IMGTOOL_TORCH_INDEX names the builds' index"
    what = f"the wheel torch {local} for {spec.platform}" if build else f"a wheel of {where}"
    raise FieldError(f"no index has {what}", field="cuda" if spec.cuda and build != "cpu" else TORCH.key, hint=hint)


def _select(files: tuple[str, ...], version: str, machine: str) -> tuple[str, ...]:
    named = (file for file in files if file.endswith(f"{machine}.whl"))
    return tuple(file for file in named if is_same_version(file.split("-")[1], version))


def _list_versions(package: Package, platform: str, *names: str) -> Iterator[str]:
    """Yields the versions with which a package pins requirements whose names begin with one of `names`."""
    environment = marker_environment("3.11", platform)
    for row in map(Requirement, package.requires):
        if row.name.startswith(names) and (row.marker is None or row.marker.evaluate(environment)):
            yield from (pin.version for pin in row.specifier if pin.operator == "==")


def _read_cuda(package: Package, platform: str) -> str:
    """Returns the CUDA (12.8) that a wheel of PyTorch requires on a platform; an empty text for a CPU build."""
    version = next(_list_versions(package, platform, "nvidia-cuda-runtime", "cuda-toolkit"), "")
    return ".".join(version.split(".")[:2])


def tabulate(release: str | None, settings: Settings) -> tuple[dict[str, Any], str]:
    """Returns the newest releases on the package index, or the row of one; raises UsageError if the index lacks it."""
    rows = list_rows(load_matrix(), WheelStore(settings).index)
    return print_newest(list_newest(rows), release, "PyTorch")


def package(request: Request, accelerator: Accelerator) -> str:
    """Returns the name of the distribution that a role installs."""
    del request, accelerator
    return TORCH.packages[0]


def requirements(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists PyTorch in the accelerator's build, and the package that contains the init."""
    version, build = request.release.version, request.release.builds.get(accelerator, "")
    yield f"torch=={version}+{build}" if build else f"torch=={version}"
    yield INIT_PACKAGE


def check_spec(request: Request, accelerators: list[Accelerator]) -> list[Finding]:
    """Finds a platform for which the builds share no Python; `learn` has checked the roles."""
    if usable_pythons(request.release, request.spec.platform):
        return []
    builds = ", ".join(request.release.builds.get(row, "") or "PyPI's" for row in accelerators)
    message = f"{request.title} has no Python for which each build ({builds}) has a wheel for {request.spec.platform}"
    return [Finding("platform", message, "linux/amd64, or another release")]


def _check_roles(spec: ImageSpec) -> Iterator[Finding]:
    """Finds an old release, TPUs, and ranks of which only some have GPUs."""
    if Version(spec.release) < Version(_FIRST):
        yield Finding(TORCH.key, f"imgtool knows PyTorch from {_FIRST} on, found {spec.release}", "a newer release")
    for role, of_role in spec.roles.items():
        if spec.accelerator_of(role) is Accelerator.TPU:
            message = "PyPI has no PyTorch for TPUs: torch_xla is no longer developed, and torch_tpu has no wheel"
            yield Finding(f"roles.{role}.tpu" if of_role.tpu else "accelerator", message, "GPUs, or JAX on the TPU")
    ranks = {role: spec.accelerator_of(role) for role in (Role.MASTER, Role.WORKER) if role in spec.roles}
    if set(ranks.values()) == {Accelerator.CPU, Accelerator.GPU}:
        slow = next(role for role, accelerator in ranks.items() if accelerator is Accelerator.CPU)
        message = f"the {slow} has no GPU, so master and workers, which are one process group, cannot use NCCL"
        other = ", or leave it out: without a master, worker 0 is rank 0" if slow is Role.MASTER else ""
        yield Finding(f"roles.{slow}", message, f"give the {slow} GPUs{other}")


def check_gpus(request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
    """Finds GPUs for which the build has no code, because they are too old or too new."""
    del python
    version, findings = version_key(cuda), []
    oldest = next((compute for first, compute in _OLDEST_GPU if version >= first), 0)
    for role, gpu in request.gpus_of(roles):
        first = next((first for compute, first in _OLDEST_CUDA.items() if gpu.compute >= compute), (0,))
        if gpu.compute < oldest or version < first:
            hint = 'cuda: "12.6"' if gpu.compute < oldest else f'cuda: "{".".join(map(str, first))}" or newer'
            message = f"the build of PyTorch for CUDA {cuda} has no code for {gpu.name}"
            findings.append(Finding(f"roles.{role}.gpus.type", message, hint))
    return findings


def check_wheels(
    spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...], named: frozenset[str], packages: tuple[Package, ...]
) -> Variant:
    """Returns the variant with the CUDA and cuDNN of its wheels.

    Raises FieldError for wheels of another build, for CUDA on a CPU role, for a second CUDA, and for another framework.
    """
    del spec
    roles, versions = ", ".join(variant.roles), {wheel.name: wheel.version for wheel in wheels}
    for wheel in wheels:
        _check_build(variant, wheel, packages)
        if variant.cuda is None and _CUDA.fullmatch(wheel.name):
            message = f"{_tell(wheel, packages)} is for GPUs, and {roles} computes on the CPU"
            hint = "remove the requirement that brings it; roles with GPUs get what their build needs without it"
            raise FieldError(message, field=FIELD, hint=hint)
    refuse_others("PyTorch", (*TENSORFLOW.packages, "tf-keras", *JAX.packages, "jaxlib"), wheels, named, packages)
    variant = with_cuda(variant, versions)
    own = (variant.cuda or "").partition(".")[0]
    for wheel in wheels if own else ():
        if (found := _GENERATION.match(wheel.name)) and found[1] != own:
            message = f"{_tell(wheel, packages)} brings CUDA {found[1]} beside CUDA {own}, which {roles} has"
            raise FieldError(message, field=FIELD, hint=f"take its release for CUDA {own}, or set cuda in the spec")
    return variant


def _check_build(variant: Variant, wheel: Wheel, packages: tuple[Package, ...]) -> None:
    """Raises FieldError if a wheel is of another build than the variant, or was compiled for another one."""
    found, roles = _BUILD.fullmatch(wheel.version), ", ".join(variant.roles)
    build = f"build {variant.build}" if variant.build else "build of PyPI"
    if found and found[1] != variant.build:
        message = f"{_tell(wheel, packages)} is a build for {found[1]}, and {roles} has PyTorch's {build}"
        hint = "write the release without the name of a build: imgtool takes the fitting one of each role"
        raise FieldError(message, field=FIELD, hint=hint)
    requires = next((row.requires for row in packages if row.name == canonicalize_name(wheel.name)), ())
    pinned = any(re.match(r"torch\s*\(?==", line) for line in requires)
    if variant.build and not found and pinned and not wheel.file.endswith("-none-any.whl"):
        message = f"{_tell(wheel, packages)} does not fit PyTorch's {build}, and no index has it in this build"
        raise FieldError(message, field=FIELD, hint="IMGTOOL_TORCH_INDEX names the builds' index; or take it out")


def _tell(wheel: Wheel, packages: tuple[Package, ...]) -> str:
    """Names a wheel and the first package that requires it."""
    own = re.compile(rf"{wheel.name.replace('-', '[-_.]')}(?![\w.-])", re.IGNORECASE)
    wanted = (row.name for row in packages if row.name != wheel.name and any(map(own.match, row.requires)))
    by = next((f", which {name} requires," for name in wanted), "")
    return f"{wheel.name} {wheel.version}{by}"
