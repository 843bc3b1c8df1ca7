"""What must not be built, and what deserves a warning: each rule a pure function that returns findings.

A finding names the key of the spec, what is wrong, and what would fit. Sources are the rows of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.model.requirement_files import PYTHON_LIMIT
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.versions.base_image import BaseImage
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, System, version_key

_OLDEST_PYTHON = (3, 6)
_FIRST_TPU_PACKAGE = (2, 16)
_DRIVER_FOLDER = "/usr/local/nvidia/lib64"
_WHEELS_FOLDER = "/site-packages/nvidia/"
_MUSL = "alpine"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, or with `warning` something to tell."""

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
    """Lists the Pythons that `release` and what it needs have wheels for on `platform`, oldest first."""
    arm = platform.startswith("linux/arm64")
    pythons, lacks = (release.pythons_arm, release.lacks_arm) if arm else (release.pythons, release.lacks)
    return tuple(python for python in pythons if version_key(python) >= _OLDEST_PYTHON and python not in lacks)


def limit_pythons(release: Release, texts: tuple[tuple[str, str], ...], python: str | None) -> Release:
    """Leaves out the Pythons that the project's own `requires-python` does.

    Raises FieldError when none is left, when the spec names another one, `python`, and for a limit that is none.
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
            raise FieldError(f"{name}: requires-python {limit!r} is no limit", field="requirements") from None
        # 3.9 stands for all of its patch releases, the first and the last among them
        fits = {python for python in release.pythons if any(map(allowed.contains, (python, f"{python}.99")))}
        if python is not None and python in {*release.pythons} - fits:
            message = f"{name} says requires-python {limit}, which leaves out Python {python}"
            raise FieldError(message, field="python", hint=f"one of {', '.join(sorted(fits, key=version_key))}")
        if not fits:
            have = f"TensorFlow {release.version} has wheels for Python {', '.join(release.pythons)}"
            message = f"{name} says requires-python {limit}, and {have}"
            raise FieldError(message, field="requirements", hint="take another TensorFlow, or change the limit")
        pythons, arm = (tuple(filter(fits.__contains__, row)) for row in (release.pythons, release.pythons_arm))
        release = replace(release, pythons=pythons, pythons_arm=arm)
    return release


def check_platform(platform: str, minor: Minor, release: Release, accelerators: Iterable[Accelerator]) -> list[Finding]:
    """Checks that there are wheels: for x86_64, since 2.10 also for aarch64, there without GPU and TPU."""
    if platform == "linux/amd64":
        return []
    if not platform.startswith("linux/arm64"):
        return [Finding("platform", f"TensorFlow has no wheels for {platform}", "linux/amd64 or linux/arm64")]
    if not release.pythons_arm:
        hint = "linux/amd64, or TensorFlow 2.10 and newer"
        return [Finding("platform", f"TensorFlow {release.version} has no aarch64 wheels", hint)]
    if not usable_pythons(release, platform):
        message = f"TensorFlow {release.version} for aarch64 needs {_list(sorted(set(release.lacks_arm.values())))}"
        others = [version for version, row in minor.releases.items() if usable_pythons(row, platform)]
        hint = f"TensorFlow {_list(others)} has what it needs" if others else "linux/amd64, or a newer TensorFlow"
        return [Finding("platform", f"{message}, which has no wheel for a Python that imgtool supports", hint)]
    if any(accelerator is not Accelerator.CPU for accelerator in accelerators):
        hint = "linux/amd64 for roles with GPUs or TPUs"
        return [Finding("platform", f"TensorFlow {minor.name} for aarch64 computes on the CPU only", hint)]
    return []


def check_python(python: str, release: Release, platform: str) -> list[Finding]:
    """Checks that this very patch release has wheels for the Python; patches drop Pythons."""
    usable = usable_pythons(release, platform)
    if python in usable:
        return []
    lacks = release.lacks_arm if platform.startswith("linux/arm64") else release.lacks
    if python in lacks:
        message = f"TensorFlow {release.version} needs {lacks[python]}, which has no wheel for Python {python}"
        return [Finding("python", message, f"one of {', '.join(usable)}")]
    if python in release.pythons and not platform.startswith("linux/arm64"):
        return [Finding("python", f"Python {python} is older than imgtool supports", f"one of {', '.join(usable)}")]
    return [
        Finding("python", f"TensorFlow {release.version} has no wheel for Python {python}", f"it has {_list(usable)}")
    ]


def check_package(release: Release, accelerator: Accelerator, minor: Minor) -> list[Finding]:
    """Checks that this release has a TensorFlow package for a role's accelerator."""
    needed = accelerator is Accelerator.TPU and version_key(minor.name) >= _FIRST_TPU_PACKAGE
    if not needed or "tensorflow-tpu" in release.packages:
        return []
    have = [version for version, of_minor in minor.releases.items() if "tensorflow-tpu" in of_minor.packages]
    hint = f"{minor.name} has it for {_list(have)}" if have else "2.19.1 and 2.20.0 have it"
    return [Finding("tensorflow", f"there is no tensorflow-tpu {release.version}", hint)]


def check_tpu(spec: ImageSpec, role: Role, minor: Minor, matrix: Matrix) -> list[Finding]:
    """Checks a TPU role: its tpuTfVersion is the TensorFlow minor, and TensorFlow never came to v6e."""
    tpu, where = spec.roles[role].tpu, f"roles.{role}.tpu"
    if tpu is None:
        return []
    if spec.accelerator_of(role) is not Accelerator.TPU:
        return [
            Finding(where, f"the role computes on {spec.accelerator_of(role)}", "leave tpu out, or accelerator: tpu")
        ]
    findings = []
    if tpu.tf_version is not None and tpu.tf_version != minor.name:
        message = f"tpuTfVersion {tpu.tf_version} is not the image's TensorFlow {minor.name}"
        findings.append(Finding(f"{where}.tf_version", message, f'remove tf_version, or set it to "{minor.name}"'))
    if "v6e" in tpu.type.lower().replace("_", "").replace("-", ""):
        findings.append(
            Finding(f"{where}.type", "TensorFlow does not support TPU v6e", "v5e with TensorFlow 2.15 or newer")
        )
    if spec.job.target == "ai-platform" and minor.name not in matrix.ai_platform_tpu:
        message = f"whether AI Platform takes tpuTfVersion {minor.name} is not known"
        accepted = ", ".join(matrix.ai_platform_tpu)
        findings.append(Finding("tensorflow", message, f"seen to be accepted: {accepted}", warning=True))
    if spec.job.target == "vertex" and version_key(minor.name) < _FIRST_TPU_PACKAGE:
        message = f"a TPU VM needs a build of TensorFlow {minor.name} that no package index has"
        hint = "TensorFlow 2.19.1 or 2.20.0, or a `base` that brings it"
        findings.append(Finding("tensorflow", message, hint, warning=True))
    return findings


def check_libtpu(release: Release, matrix: Matrix, sources: Iterable[str]) -> list[Finding]:
    """Checks the find-links `sources`: tensorflow-tpu 2.16 to 2.18 pin a libtpu that only Google's own page has."""
    libtpu = matrix.libtpu.get(release.version)
    if libtpu is None or libtpu.on_index != "false" or any("libtpu" in source for source in sources):
        return []
    message = f"tensorflow-tpu {release.version} needs libtpu{libtpu.version}, which the package index does not have"
    return [Finding("tensorflow", message, f"set UV_FIND_LINKS={matrix.tpu_find_links}, or take 2.19.1")]


def check_system(image: BaseImage, system: System | None, minor: Minor, field: str) -> list[Finding]:
    """Checks that the base's glibc is as new as the wheels ask; musl has none."""
    if image.tag and _MUSL in image.tag:
        return [Finding(field, f"{image.name} has musl, and TensorFlow's wheels need glibc", "a -slim-bookworm image")]
    if system and version_key(system.glibc) < version_key(minor.glibc):
        message = f"{image.name} has glibc {system.glibc}, TensorFlow {minor.name} needs {minor.glibc}"
        return [Finding(field, message, "a newer system")]
    return []


def check_library_path(spec: ImageSpec) -> list[Finding]:
    """Checks LD_LIBRARY_PATH of a GPU role: an own one must keep the driver's folder, and those of NVIDIA's wheels."""
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
                message = "it lacks the folders of NVIDIA's wheels, where TensorFlow and cuDNN look for libraries"
            if message:
                findings.append(Finding(field, message, "leave it out: the image sets a fitting one", warning=True))
            break
    return findings


def _list(values: Iterable[str]) -> str:
    return ", ".join(values) or "none"
