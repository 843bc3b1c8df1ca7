"""CUDA for TensorFlow: the bases with CUDA, the content of a base, and the GPUs for which a wheel has code."""

from __future__ import annotations

from training_imgtool.base.errors import FieldError
from training_imgtool.model.spec import Role
from training_imgtool.resolve.frameworks.tensorflow.install import check_xla
from training_imgtool.resolve.versions.base_image import BaseImage
from training_imgtool.resolve.versions.matrix import (
    CudaImage,
    FittingBase,
    Gpu,
    Matrix,
    Minor,
    Release,
    lowest,
    version_key,
)
from training_imgtool.resolve.versions.request import Request
from training_imgtool.resolve.versions.rules import Finding

_BLACKWELL = 100  # compute capability 10.0; no wheel supports it so far (TF#89272, TF#97387)


def cuda_base(request: Request, python: str) -> FittingBase | None:
    """Chooses the best tag for `python`: one whose distribution has this Python, else one for which deadsnakes does."""
    minor, matrix = request.minor, request.matrix
    if request.wheels:
        return None
    if not minor.bases:
        hint = "accelerator: cpu, TensorFlow 2.4 or newer, or a `base` of your own with CUDA " + minor.cuda
        raise FieldError(f"no base with CUDA {minor.cuda}: {minor.no_base}", field="tensorflow", hint=hint)
    systems = [(base, matrix.systems[matrix.cuda_images[base.tag].os]) for base in minor.bases]
    for base, system in systems:
        if system.python == python:
            return base
    for base, system in systems:
        if python in system.deadsnakes:
            return base
    have = sorted({system.python for _, system in systems}, key=version_key)
    raise FieldError(
        f"no nvidia/cuda base for TensorFlow {minor.name} has Python {python}",
        field="python",
        hint=f"Python {' or '.join(have)}; or cuda_from: wheels" if minor.and_cuda else f"Python {' or '.join(have)}",
    )


def find_cuda(request: Request, image: BaseImage) -> tuple[str, str]:
    """Returns the versions of CUDA and cuDNN that a GPU role has if `image` is its base."""
    minor = request.minor
    if request.wheels:
        cudnn = next((lowest(pin) for name, pin in minor.and_cuda.items() if "cudnn" in name), minor.cudnn)
        return minor.cuda, cudnn
    if image.cuda is None:  # a base of the user's: the build checks for what TensorFlow needs
        return minor.cuda, minor.cudnn
    return image.cuda.cuda, image.cuda.cudnn or _apt_cudnn(request, image) or minor.cudnn


def _apt_cudnn(request: Request, image: BaseImage) -> str | None:
    for base in request.minor.bases:
        if base.tag == image.tag:
            return next((pin.partition("=")[2].partition("-")[0] for pin in base.apt if "cudnn" in pin), None)
    return None


def check_gpus(request: Request, roles: tuple[Role, ...], cuda: str, python: str) -> list[Finding]:
    """Finds settings that do not fit the GPUs of roles."""
    findings = list(check_and_cuda(request.minor, request.release, python)) if request.wheels else []
    for role, gpu in request.gpus_of(roles):
        findings += check_gpu(gpu, request.minor, cuda, f"roles.{role}.gpus.type")
    return findings + check_xla(request, python)


def check_cuda_base(request: Request, image: BaseImage, field: str) -> list[Finding]:
    """Checks that an nvidia/cuda base exists and contains the CUDA and cuDNN that the wheels load."""
    minor, matrix = request.minor, request.matrix
    if image.flavour == "base":
        return [Finding(field, f"{image.tag} contains only the CUDA runtime, not cuBLAS and cuDNN", _fitting(minor))]
    if image.cuda is None:
        return _check_unlisted(image, minor, field)
    inside = image.cuda
    if inside.status == "gone":
        return [Finding(field, f"nvidia/cuda:{image.tag} was deleted from Docker Hub", _fitting(minor))]
    completed = any(base.tag == inside.tag and base.apt for base in minor.bases)
    findings = _cuda_release(inside.cuda, minor, field)
    if inside.cudnn is None and not completed:
        findings.append(
            Finding(
                field, f"nvidia/cuda:{image.tag} has no cuDNN, which TensorFlow {minor.name} needs", _fitting(minor)
            )
        )
    elif inside.cudnn is not None and all(finding.warning for finding in findings):
        findings += _cudnn_release(inside, minor, field)
    if inside.status == "unsupported" and not findings:
        hint = "copy it to your own registry, or take a supported one" + _list_supported(minor, matrix, inside.tag)
        findings.append(
            Finding(field, f"NVIDIA no longer rebuilds nvidia/cuda:{image.tag} and may delete it", hint, warning=True)
        )
    return findings


def _check_unlisted(image: BaseImage, minor: Minor, field: str) -> list[Finding]:
    numbers = (image.tag or "").partition("-")[0]
    findings = _cuda_release(numbers, minor, field) if version_key(numbers) else []
    if findings and not findings[0].warning:
        return findings
    message = f"{image.name} is not in the version matrix: whether its CUDA and cuDNN fit shows when it is built"
    return [Finding(field, message, _fitting(minor), warning=True)]


def _cuda_release(cuda: str, minor: Minor, field: str) -> list[Finding]:
    have, built = version_key(cuda), version_key(minor.cuda)
    exact = built < (11, 1)  # CUDA 10 has no minor-version compatibility; TF 2.4 opens libcusolver.so.10
    if have[0] != built[0] or (exact and have[:2] != built[:2]):
        need = f"CUDA {minor.cuda} exactly" if exact else f"CUDA {built[0]}"
        return [Finding(field, f"CUDA {cuda} in the base, but TensorFlow {minor.name} needs {need}", _fitting(minor))]
    if have[:2] < built[:2]:
        message = f"CUDA {cuda} in the base is older than the {minor.cuda} that TensorFlow {minor.name} was built with"
        return [Finding(field, message, _fitting(minor), warning=True)]
    return []


def _cudnn_release(inside: CudaImage, minor: Minor, field: str) -> list[Finding]:
    have, built = version_key(inside.cudnn or "")[:2], version_key(minor.cudnn)
    if have[0] == built[0] and have >= built:
        return []
    which = f"cuDNN {built[0]}" if have[0] != built[0] else f"cuDNN {minor.cudnn} or a later {built[0]}.x"
    message = f"nvidia/cuda:{inside.tag} holds cuDNN {inside.cudnn}, but TensorFlow {minor.name} needs {which}"
    return [Finding(field, message, _fitting(minor))]


def _fitting(minor: Minor) -> str:
    if not minor.bases:
        return f"no nvidia/cuda tag fits TensorFlow {minor.name} any more: {minor.no_base}"
    return "these fit: " + ", ".join(f"nvidia/cuda:{base.tag}" for base in minor.bases)


def _list_supported(minor: Minor, matrix: Matrix, besides: str) -> str:
    tags = [
        base.tag
        for base in minor.bases
        if base.tag != besides and (image := matrix.cuda_images.get(base.tag)) and image.status == "supported"
    ]
    return f": nvidia/cuda:{tags[0]}" if tags else ""


def check_and_cuda(minor: Minor, release: Release, python: str) -> list[Finding]:
    """Checks `cuda_from: wheels`, which works from 2.14 on, but not with every release."""
    field = "cuda_from"
    if not minor.and_cuda:
        return [
            Finding(
                field, f"TensorFlow {release.version} has no extra and-cuda", "cuda_from: base, or 2.15.1 and newer"
            )
        ]
    for what, why in minor.and_cuda_broken.items():
        if what in (release.version, f"python {python}"):
            hint = "cuda_from: base" + (
                f", or {minor.recommended}" if what != f"python {python}" else ", or Python 3.10"
            )
            return [Finding(field, f"tensorflow[and-cuda] {release.version} does not work: it {_it(why)}", hint)]
    return []


def _it(why: str) -> str:
    return why if why.startswith("pins") else f"is broken: {why}"


def check_gpu(gpu: Gpu, minor: Minor, cuda: str | None, field: str) -> list[Finding]:
    """Checks that the wheel has code for the GPU. For newer GPUs, the driver compiles the code at start."""
    if not minor.compute:
        return []
    codes = {name: int(name.rpartition("_")[2]) for name in minor.compute}
    oldest = min(codes.values())
    if gpu.compute >= _BLACKWELL:
        hint = "a build of TensorFlow for it (NVIDIA's own images) as `base`, or an older GPU"
        return [
            Finding(field, f"no TensorFlow wheel runs on {gpu.name} (compute capability {_dot(gpu.compute)})", hint)
        ]
    if gpu.compute < oldest:
        message = (
            f"{gpu.name} has compute capability {_dot(gpu.compute)}, TensorFlow {minor.name} begins at {_dot(oldest)}"
        )
        return [Finding(field, message, "an older TensorFlow or a newer GPU")]
    findings = []
    if not any(code // 10 == gpu.compute // 10 and code <= gpu.compute for code in codes.values()):
        message = f"TensorFlow {minor.name} has no code for {gpu.name}: the driver compiles it first, for 30 minutes"
        findings.append(Finding(field, message, "TensorFlow 2.16 and newer have it", warning=True))
    if cuda is not None and version_key(cuda)[:2] < version_key(gpu.cuda):
        message = f"the base's CUDA {cuda} is older than {gpu.name}, which CUDA knows from {gpu.cuda} on"
        findings.append(Finding(field, message, _fitting(minor), warning=True))
    return findings


def _dot(compute: int) -> str:
    return f"{compute // 10}.{compute % 10}"
