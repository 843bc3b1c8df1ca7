"""Rules that refuse a build or warn about it. Each rule is a pure function that returns findings.

A finding names the key of the spec, the fault, and a value that fits. The rules get their facts from the matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.model.frameworks import Framework
from training_imgtool.model.requirement_files import PYTHON_LIMIT
from training_imgtool.model.spec import Accelerator, ImageSpec
from training_imgtool.resolve.versions.base_image import BaseImage
from training_imgtool.resolve.versions.matrix import Release, System, version_key
from training_imgtool.resolve.versions.request import Request

_OLDEST_PYTHON = (3, 6)
_DRIVER_FOLDER = "/usr/local/nvidia/lib64"
_WHEELS_FOLDER = "/site-packages/nvidia/"
_MUSL = "alpine"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, or a warning if `warning` is true."""

    field: str
    message: str
    hint: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.hint}"


def raise_errors(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Raises the errors among `findings` (FieldError for one, FieldListError for more); returns the warnings."""
    distinct = tuple(dict.fromkeys(findings))
    errors = tuple(FieldError(f.message, field=f.field, hint=f.hint) for f in distinct if not f.warning)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise FieldListError(errors)
    return tuple(str(finding) for finding in distinct)


def usable_pythons(release: Release, platform: str) -> tuple[str, ...]:
    """Lists the Pythons, oldest first, for which `release` and the packages it needs have wheels on `platform`."""
    arm = platform.startswith("linux/arm64")
    pythons, lacks = (release.pythons_arm, release.lacks_arm) if arm else (release.pythons, release.lacks)
    return tuple(python for python in pythons if version_key(python) >= _OLDEST_PYTHON and python not in lacks)


def limit_pythons(
    release: Release, texts: tuple[tuple[str, str], ...], python: str | None, framework: Framework
) -> Release:
    """Removes the Pythons that the project's own `requires-python` excludes.

    Raises FieldError if no Python is left, if the limit excludes the spec's own `python`, or if the limit is invalid.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for name, text in texts:
        line = next((line for line in text.splitlines() if line.startswith(PYTHON_LIMIT)), None)
        if line is None:
            continue
        limit = line.removeprefix(PYTHON_LIMIT)
        try:
            allowed = SpecifierSet(limit)
        except InvalidSpecifier:
            raise FieldError(f"{name}: requires-python {limit!r} is not valid", field="requirements") from None
        # 3.9 means any of its patch releases, from the first to the last
        fits = {python for python in release.pythons if any(map(allowed.contains, (python, f"{python}.99")))}
        if python is not None and python in {*release.pythons} - fits:
            message = f"{name} says requires-python {limit}, which leaves out Python {python}"
            raise FieldError(message, field="python", hint=f"one of {', '.join(sorted(fits, key=version_key))}")
        if not fits:
            have = f"{framework.title} {release.version} has wheels for Python {', '.join(release.pythons)}"
            message = f"{name} says requires-python {limit}, and {have}"
            raise FieldError(
                message, field="requirements", hint=f"change requires-python or the {framework.title} release"
            )
        pythons, arm = (tuple(filter(fits.__contains__, row)) for row in (release.pythons, release.pythons_arm))
        release = replace(release, pythons=pythons, pythons_arm=arm)
    return release


def check_python(python: str, release: Release, spec: ImageSpec) -> list[Finding]:
    """Checks that this patch release has wheels for the Python, because patch releases of one minor differ in that."""
    platform, title = spec.platform, f"{spec.framework.title} {release.version}"
    usable = usable_pythons(release, platform)
    if python in usable:
        return []
    lacks = release.lacks_arm if platform.startswith("linux/arm64") else release.lacks
    if python in lacks:
        message = f"{title} needs {lacks[python]}, which has no wheel for Python {python}"
        return [Finding("python", message, f"one of {', '.join(usable)}")]
    if python in release.pythons and not platform.startswith("linux/arm64"):
        return [Finding("python", f"Python {python} is older than imgtool supports", f"one of {', '.join(usable)}")]
    return [Finding("python", f"{title} has no wheel for Python {python}", f"it has {join(usable)}")]


def check_system(image: BaseImage, system: System | None, request: Request, field: str) -> list[Finding]:
    """Checks that the base's glibc is new enough for the wheels, and that the base does not use musl."""
    minor = request.minor
    if image.tag and _MUSL in image.tag:
        return [
            Finding(
                field,
                f"{image.name} has musl, and {request.framework.title}'s wheels need glibc",
                "a -slim-bookworm image",
            )
        ]
    if system and version_key(system.glibc) < version_key(minor.glibc):
        message = f"{image.name} has glibc {system.glibc}, {request.framework.title} {minor.name} needs {minor.glibc}"
        return [Finding(field, message, "a newer system")]
    return []


def check_library_path(spec: ImageSpec) -> list[Finding]:
    """Checks the spec's LD_LIBRARY_PATH: with GPUs, it must keep the folders of the driver and of NVIDIA's wheels."""
    findings = []
    for role, of_role in spec.roles.items():
        for env, field in ((of_role.env, f"roles.{role}.env.LD_LIBRARY_PATH"), (spec.env, "env.LD_LIBRARY_PATH")):
            value = env.get("LD_LIBRARY_PATH")
            if value is None:
                continue
            if spec.accelerator_of(role) is not Accelerator.GPU:
                break
            message = ""
            if _DRIVER_FOLDER not in value.split(":"):
                message = f"it lacks {_DRIVER_FOLDER}, where GKE and Vertex AI mount the driver"
            elif spec.cuda_from == "wheels" and _WHEELS_FOLDER not in value:
                message = "it lacks the folders of NVIDIA's wheels, where its programs look for libraries"
            if message:
                findings.append(Finding(field, message, "leave it out: the image sets a fitting one", warning=True))
            break
    return findings


def join(values: Iterable[str]) -> str:
    """Joins texts for people."""
    return ", ".join(values) or "none"
