"""Chooses a variant for each set of roles: package, Python, CUDA, cuDNN, base, constraints.

Pure: everything comes from the spec and the matrix. All roles of a spec share the release and Python's minor, so that
each role can read the pickles of other roles. So the base of a GPU role decides the Python of all roles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.model.lock import Variant
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.frameworks import Rules, rules_of
from training_imgtool.resolve.versions import rules
from training_imgtool.resolve.versions.base_image import BaseImage, describe
from training_imgtool.resolve.versions.matrix import Matrix
from training_imgtool.resolve.versions.request import Request
from training_imgtool.resolve.versions.rules import Finding


@dataclass(frozen=True, slots=True)
class Resolution:
    """The chosen variants, and the warnings."""

    variants: tuple[Variant, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Roles that share a variant, because they have the same accelerator, and the user set the same base for them."""

    name: str
    accelerator: Accelerator
    roles: tuple[Role, ...]
    image: BaseImage | None
    field: str  # the key of the spec that names the base


def resolve(spec: ImageSpec, matrix: Matrix, texts: tuple[tuple[str, str], ...] = ()) -> Resolution:
    """Chooses every role's variant.

    Args:
        spec: the user's choices.
        matrix: the versions that fit together.
        texts: the requirements, which may limit Python.

    Raises:
        FieldError: one value does not fit; the error names the key and a value that fits.
        FieldListError: several values do not fit.
    """
    minor, release = matrix.release(spec.release, spec.framework)
    request = Request(spec, matrix, minor, rules.limit_pythons(release, texts, spec.python, spec.framework))
    groups, of_framework = _groups(request), rules_of(spec.framework)
    findings = _check_spec(request, groups, of_framework)
    rules.raise_errors(findings)
    python = _python(request, groups)
    findings += rules.check_python(python, request.release, spec)
    shared = rules.raise_errors(findings)
    variants: list[Variant] = []
    errors: list[Finding] = []
    for group in groups:
        variant, of_group = _variant(request, group, python, of_framework)
        errors += of_group
        notes = tuple(str(finding) for finding in of_group if finding.warning)
        variants.append(replace(variant, notes=notes if variants else tuple(dict.fromkeys((*shared, *notes)))))
    warnings = (*shared, *rules.raise_errors(errors))
    return Resolution(tuple(variants), tuple(dict.fromkeys(warnings)))


def _groups(request: Request) -> tuple[_Group, ...]:
    spec = request.spec
    shared = describe(spec.base, request.matrix) if spec.base else None
    groups: dict[str, _Group] = {}
    for role in (role for role in Role if role in spec.roles):
        accelerator, own = spec.accelerator_of(role), spec.roles[role].base
        if own:
            groups[role] = _Group(role, accelerator, (role,), describe(own, request.matrix), f"roles.{role}.base")
            continue
        name = str(accelerator)
        # An nvidia/cuda image at the top of the spec is for the roles with GPUs; a parameter server needs no CUDA.
        image = None if shared and shared.is_cuda and accelerator is Accelerator.CPU else shared
        roles = (*groups[name].roles, role) if name in groups else (role,)
        groups[name] = _Group(name, accelerator, roles, image, "base")
    return tuple(groups.values())


def _check_spec(request: Request, groups: tuple[_Group, ...], of_framework: Rules) -> list[Finding]:
    spec = request.spec
    findings = of_framework.check_spec(request, [group.accelerator for group in groups])
    findings += rules.check_library_path(spec)
    for group in groups:
        findings += _check_base(request, group, of_framework)
    if spec.python is not None and not findings:
        findings += rules.check_python(spec.python, request.release, spec)
    return findings


def _check_base(request: Request, group: _Group, of_framework: Rules) -> list[Finding]:
    image, minor = group.image, request.minor
    if image is None:
        return []
    system = request.matrix.systems.get(image.os or "")
    findings = rules.check_system(image, system, request, group.field)
    if group.accelerator is Accelerator.TPU and image.is_cuda:
        findings.append(
            Finding(group.field, "a TPU role on an nvidia/cuda base", "a slim Python image; leave base out")
        )
    elif group.accelerator is Accelerator.CPU and image.is_cuda:
        message = f"{', '.join(group.roles)} computes on the CPU: the base's CUDA is 2 GB of no use"
        findings.append(Finding(group.field, message, "leave base out", warning=True))
    elif group.accelerator is Accelerator.GPU and image.is_cuda and request.wheels:
        message = "the base has CUDA, and cuda_from: wheels brings a second one"
        findings.append(Finding(group.field, message, "leave base out, or cuda_from: base", warning=True))
    elif group.accelerator is Accelerator.GPU and image.is_cuda:
        findings += of_framework.check_cuda_base(request, image, group.field)
    elif group.accelerator is Accelerator.GPU and image.has_python and not request.wheels:
        hint = "leave base out, or cuda_from: wheels" if minor.and_cuda else "leave base out"
        findings.append(Finding(group.field, f"{image.name} has no CUDA, and {', '.join(group.roles)} needs it", hint))
    return findings


def _python(request: Request, groups: tuple[_Group, ...]) -> str:
    """Chooses the Python of all roles: the user's, else a base's own, else the newest that some image has."""
    spec = request.spec
    if spec.python is not None:
        return spec.python
    usable = rules.usable_pythons(request.release, spec.platform)
    for group in groups:
        if group.image is not None and group.image.python is not None:
            own = group.image.python
            if own in usable or group.image.is_python:
                return own
            others = [python for python in usable if _source(request, group.image, python)]
            if others:
                return others[-1]
            message = f"{group.image.name} comes with Python {own}, {request.title} has wheels for "
            raise FieldError(message + ", ".join(usable), field=group.field, hint="set another base, or remove the key")
    for group in groups:
        if group.accelerator is Accelerator.GPU and group.image is None and not request.wheels:
            systems = request.matrix.systems
            images = (request.matrix.cuda_images[base.tag] for base in request.minor.bases)
            return next((p for image in images if (p := systems[image.os].python) in usable), usable[-1])
    return next(python for python in reversed(usable) if python in request.matrix.python_images)


def _source(request: Request, image: BaseImage, python: str) -> str | None:
    """Returns where `python` on `image` comes from: image, apt or deadsnakes; None if `image` cannot have it."""
    if image.is_python:
        return "image" if image.python in (None, python) else None
    if image.os is None:
        return "image"
    system = request.matrix.systems[image.os]
    if system.python == python:
        return "apt"
    return "deadsnakes" if python in system.deadsnakes else None


def _variant(request: Request, group: _Group, python: str, of_framework: Rules) -> tuple[Variant, list[Finding]]:
    findings: list[Finding] = []
    apt: tuple[str, ...] = ()
    is_gpu = group.accelerator is Accelerator.GPU
    if group.image is not None:
        image = group.image
        apt = next((base.apt for base in request.minor.bases if image.is_cuda and base.tag == image.tag), ())
        if not image.has_python:
            message = f"{image.name}: what is in it is not known; Python {python} is taken for given"
            findings.append(Finding(group.field, message, f"it must have {_executable(image, python)}", warning=True))
    elif is_gpu and (fitting := of_framework.cuda_base(request, python)):
        apt = fitting.apt
        image = describe(f"nvidia/cuda:{fitting.tag}", request.matrix)
        findings += of_framework.check_cuda_base(request, image, request.framework.key)
    else:
        image = describe(f"python:{request.matrix.python_images[python].tag}", request.matrix)
    source = _source(request, image, python)
    if source is None:
        message = f"{image.name} has no Python {python}"
        raise FieldError(message, field=group.field, hint=f"set python: {image.python}, or remove base")
    cuda, cudnn = of_framework.find_cuda(request, image) if is_gpu else (None, None)
    findings += of_framework.check_gpus(request, group.roles, cuda, python) if cuda else []
    release: Any = {request.framework.key: request.release.version}
    variant = Variant(
        name=group.name,
        roles=group.roles,
        accelerator=group.accelerator,
        package=of_framework.package(request, group.accelerator),
        **release,
        python=python,
        cuda=cuda,
        cudnn=cudnn,
        base=image.name,
        os=image.os,
        python_from=source,
        python_executable=_executable(image, python),
        requirements=tuple(of_framework.requirements(request, group.accelerator)),
        constraints=tuple(of_framework.constraints(request, group.accelerator)),
        libraries=of_framework.libraries(request.minor) if is_gpu and not request.wheels else (),
        apt=apt,
    )
    return variant, findings


def _executable(image: BaseImage, python: str) -> str:
    return f"/usr/local/bin/python{python}" if image.is_python else f"/usr/bin/python{python}"
