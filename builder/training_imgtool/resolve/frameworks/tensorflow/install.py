"""The content of a TensorFlow variant: its package, packages that it needs, limits, and libraries that it loads."""

from __future__ import annotations

from collections.abc import Iterator

from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.versions.matrix import Minor, lowest, version_key
from training_imgtool.resolve.versions.request import INIT_PACKAGE, Request
from training_imgtool.resolve.versions.rules import Finding

_XLA_OPTIMIZERS = (2, 11)  # from this release on, Keras optimizers compile with XLA
_XLA_FINDS_WHEEL = (2, 14)  # from this release on, TensorFlow finds libdevice in the nvcc wheel
_PTXAS_11 = "nvidia-cuda-nvcc-cu11==11.8.89"
_RANGES = (2, 20)  # from this release on, the extra and-cuda has ranges of versions
_LIBRARIES: dict[str, tuple[str, ...]] = {
    "11": ("cudart.so.11.0", "cublas.so.11", "cufft.so.10", "curand.so.10", "cusolver.so.11", "cusparse.so.11"),
    "12": ("cudart.so.12", "cublas.so.12", "cufft.so.11", "curand.so.10", "cusolver.so.11", "cusparse.so.12"),
}


def package(request: Request, accelerator: Accelerator) -> str:
    """Returns the name of the distribution on the package index."""
    release = request.release
    if accelerator is Accelerator.GPU:
        cpu_only = release.cpu_wheel and "tensorflow-gpu" in release.packages
        return "tensorflow-gpu" if cpu_only else "tensorflow"
    if accelerator is Accelerator.TPU and "tensorflow-tpu" in release.packages:
        return "tensorflow-tpu"
    if "tensorflow-cpu" in release.packages and request.spec.platform == "linux/amd64":
        return "tensorflow-cpu"
    return "tensorflow"


def requirements(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists TensorFlow, and packages that it needs although its metadata do not require them."""
    minor, gpu = request.minor, accelerator is Accelerator.GPU
    extra = "[and-cuda]" if gpu and request.wheels else ""
    yield f"{package(request, accelerator)}{extra}=={request.release.version}"
    yield from minor.add
    if gpu and not request.wheels and version_key(minor.name) >= _XLA_OPTIMIZERS:
        pins = (f"{name}=={lowest(pin)}" for name, pin in minor.and_cuda.items() if "cuda-nvcc" in name)
        yield next(pins, _PTXAS_11)  # the runtime image lacks ptxas and libdevice
    yield INIT_PACKAGE


def constraints(request: Request, accelerator: Accelerator) -> Iterator[str]:
    """Lists constraints; without them, the release does not install or import, or installs a needless gigabyte."""
    minor = request.minor
    yield from (*minor.constraints, *request.release.constraints)
    if accelerator is Accelerator.GPU and request.wheels and version_key(minor.name) >= _RANGES:
        yield from (f"{name}=={lowest(pin)}" for name, pin in minor.and_cuda.items())


def libraries(minor: Minor) -> tuple[str, ...]:
    """Lists the sonames that the wheels load (tensorflow/compiler/xla/tsl dso_loader.cc)."""
    names = _LIBRARIES.get(minor.cuda.partition(".")[0], ())
    if minor.cuda == "11.0":
        names = tuple(name.replace("cusolver.so.11", "cusolver.so.10") for name in names)
    cudnn = minor.cudnn.partition(".")[0]
    return (*(f"lib{name}" for name in names), f"libcudnn.so.{cudnn}") if names else ()


def check_xla(request: Request, python: str) -> list[Finding]:
    """Warns that GPU roles of TensorFlow 2.11 to 2.13 need `XLA_FLAGS` to find libdevice."""
    minor = version_key(request.minor.name)
    if request.wheels or not _XLA_OPTIMIZERS <= minor < _XLA_FINDS_WHEEL:
        return []
    if "XLA_FLAGS" in request.spec.env:
        return []
    folder = f"/opt/venv/lib/python{python}/site-packages/nvidia/cuda_nvcc"
    message = (
        f"Keras optimizers of TensorFlow {request.minor.name} need XLA's libdevice, which it does not find by itself"
    )
    return [Finding("env", message, f'env: {{XLA_FLAGS: "--xla_gpu_cuda_data_dir={folder}"}}', warning=True)]
