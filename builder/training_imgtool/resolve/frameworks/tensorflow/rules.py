"""Rules that refuse a TensorFlow build, or warn about it, because of the platform, TPUs or Keras 2."""

from __future__ import annotations

from collections.abc import Iterable

from training_imgtool.base.errors import FieldError
from training_imgtool.model.frameworks.tensorflow import KERAS_2, asks_for_keras_2
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.requirements import normalise_name
from training_imgtool.model.spec import Accelerator, ImageSpec, Role
from training_imgtool.resolve.versions.matrix import Matrix, Minor, Release, version_key
from training_imgtool.resolve.versions.request import Request
from training_imgtool.resolve.versions.rules import Finding, join, usable_pythons

_FIRST_TPU_PACKAGE = (2, 16)
_OWN_KERAS_2 = (2, 15)  # from this TensorFlow on, the variable makes the package tf-keras provide tf.keras


def check_spec(request: Request, accelerators: list[Accelerator]) -> list[Finding]:
    """Finds a platform, an accelerator or a TPU that does not fit the release."""
    spec, minor, release = request.spec, request.minor, request.release
    findings = check_platform(spec.platform, minor, release, accelerators)
    for role in spec.roles:
        findings += check_tpu(spec, role, minor, request.matrix)
    for accelerator in accelerators:
        findings += check_package(release, accelerator, minor)
    return findings


def check_platform(platform: str, minor: Minor, release: Release, accelerators: Iterable[Accelerator]) -> list[Finding]:
    """Checks that TensorFlow has wheels for a platform: x86_64 always, aarch64 from 2.10 on and without GPUs."""
    if platform == "linux/amd64":
        return []
    if not platform.startswith("linux/arm64"):
        return [Finding("platform", f"TensorFlow has no wheels for {platform}", "linux/amd64 or linux/arm64")]
    if not release.pythons_arm:
        hint = "linux/amd64, or TensorFlow 2.10 and newer"
        return [Finding("platform", f"TensorFlow {release.version} has no aarch64 wheels", hint)]
    if not usable_pythons(release, platform):
        message = f"TensorFlow {release.version} for aarch64 needs {join(sorted(set(release.lacks_arm.values())))}"
        others = [version for version, row in minor.releases.items() if usable_pythons(row, platform)]
        hint = f"TensorFlow {join(others)} has what it needs" if others else "linux/amd64, or a newer TensorFlow"
        return [Finding("platform", f"{message}, which has no wheel for a Python that imgtool supports", hint)]
    if any(accelerator is not Accelerator.CPU for accelerator in accelerators):
        hint = "linux/amd64 for roles with GPUs or TPUs"
        return [Finding("platform", f"TensorFlow {minor.name} for aarch64 computes on the CPU only", hint)]
    return []


def check_package(release: Release, accelerator: Accelerator, minor: Minor) -> list[Finding]:
    """Checks that this release has a TensorFlow package for a role's accelerator."""
    needed = accelerator is Accelerator.TPU and version_key(minor.name) >= _FIRST_TPU_PACKAGE
    if not needed or "tensorflow-tpu" in release.packages:
        return []
    have = [version for version, of_minor in minor.releases.items() if "tensorflow-tpu" in of_minor.packages]
    hint = f"{minor.name} has it for {join(have)}" if have else "2.19.1 and 2.20.0 have it"
    return [Finding("tensorflow", f"there is no tensorflow-tpu {release.version}", hint)]


def check_tpu(spec: ImageSpec, role: Role, minor: Minor, matrix: Matrix) -> list[Finding]:
    """Checks a TPU role: tpuTfVersion must equal TensorFlow's minor version, and the TPU must not be a v6e."""
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
    """Checks that find-links `sources` have the libtpu that tensorflow-tpu 2.16 to 2.18 need and no index has."""
    libtpu = matrix.libtpu.get(release.version)
    if libtpu is None or libtpu.on_index != "false" or any("libtpu" in source for source in sources):
        return []
    message = f"tensorflow-tpu {release.version} needs libtpu{libtpu.version}, which the package index does not have"
    return [Finding("tensorflow", message, f"set UV_FIND_LINKS={matrix.tpu_find_links}, or take 2.19.1")]


def check_keras(spec: ImageSpec, variant: Variant, wheels: tuple[Wheel, ...]) -> None:
    """Raises FieldError if a variable tells TensorFlow to use the package tf-keras (Keras 2), and no wheel has it."""
    asked = [role for role in variant.roles if asks_for_keras_2({**spec.env, **spec.roles[role].env})]
    if not asked or version_key(variant.release) < _OWN_KERAS_2:
        return
    if not any(normalise_name(wheel.name) == "tf-keras" for wheel in wheels):
        minor = ".".join(variant.release.split(".")[:2])
        raise FieldError(
            f"with {KERAS_2}, tf.keras of {', '.join(asked)} is the package tf-keras, which the lock does not contain",
            field=f"env.{KERAS_2}",
            hint=f"add tf-keras=={minor}.* to the requirements, or remove the variable",
        )
