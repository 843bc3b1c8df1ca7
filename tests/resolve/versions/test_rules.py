"""Every refuse rule: the error or warning, its key, and what it says would fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.model.job import JobSpec
from training_imgtool.model.requirements import parse_requirements
from training_imgtool.model.spec import Accelerator, Gpus, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.model.targets import Target
from training_imgtool.resolve.frameworks.tensorflow.rules import check_libtpu
from training_imgtool.resolve.versions.matrix import Matrix, load_matrix
from training_imgtool.resolve.versions.resolve import resolve
from training_imgtool.resolve.versions.rules import raise_errors
from training_imgtool.resolve.versions.rules_requirements import check_requirements

CPU, GPU, TPU = Accelerator.CPU, Accelerator.GPU, Accelerator.TPU
MATRIX = load_matrix()


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return MATRIX


def spec(tensorflow: str, roles: Mapping[Role, RoleSpec] | None = None, **more: Any) -> ImageSpec:
    return ImageSpec(name="mnist", tensorflow=tensorflow, roles=roles or {Role.MASTER: RoleSpec()}, **more)


def gpu(kind: str) -> dict[Role, RoleSpec]:
    return {Role.MASTER: RoleSpec(gpus=Gpus(type=kind))}


def cuda(tag: str) -> str:
    return f"nvidia/cuda:{tag}"


# spec, key, what is said, what would fit
REFUSED = [
    pytest.param(spec("2.12.1", python="3.12"), "python", "no wheel for Python 3.12", "3.11", id="python"),
    pytest.param(
        spec("2.11.1", python="3.10", platform="linux/arm64"),
        "platform",
        "needs tensorflow-cpu-aws 2.11.1, which has no wheel",
        "TensorFlow 2.11.0",
        id="empty-aarch64-wheel",
    ),
    pytest.param(spec("2.12.1", python="3.8"), "python", "needs jax, which has no wheel", "3.9, 3.10", id="jax"),
    pytest.param(spec("1.15.0", python="2.7"), "python", "older than imgtool supports", "3.6, 3.7", id="python-2"),
    pytest.param(spec("2.16.0"), "tensorflow", "has no TensorFlow 2.16.0", "2.16.2", id="no-2.16.0"),
    pytest.param(
        spec("2.15.1", accelerator=GPU, base=cuda("11.8.0-cudnn8-runtime-ubuntu22.04")),
        "base",
        "needs CUDA 12",
        "12.2.2-cudnn8-runtime-ubuntu22.04",
        id="cuda-major",
    ),
    pytest.param(
        spec("2.4.4", accelerator=GPU, base=cuda("11.2.2-cudnn8-runtime-ubuntu20.04")),
        "base",
        "CUDA 11.0 exactly",
        "11.0.3-cudnn8-runtime-ubuntu20.04",
        id="tf-2.4-cuda-11.0",
    ),
    pytest.param(
        spec("2.18.1", accelerator=GPU, base=cuda("12.5.1-cudnn-runtime-ubuntu22.04")),
        "base",
        "holds cuDNN 9.2.1.18, but TensorFlow 2.18 needs cuDNN 9.3 or a later 9.x",
        "12.6.3-cudnn-runtime-ubuntu22.04",
        id="cudnn-minor",
    ),
    pytest.param(
        spec("2.17.1", accelerator=GPU, base=cuda("12.3.2-cudnn9-runtime-ubuntu22.04")),
        "base",
        "needs cuDNN 8",
        "12.2.2-cudnn8-runtime-ubuntu22.04",
        id="cudnn-major",
    ),
    pytest.param(
        spec("2.12.1", accelerator=GPU, base=cuda("11.8.0-cudnn8-runtime-ubuntu18.04")),
        "base",
        "has wheels for 3.9",
        "another base",
        id="base-python-too-old",
    ),
    pytest.param(
        spec("1.15.5", accelerator=GPU, base=cuda("10.0-cudnn7-runtime-ubuntu18.04")),
        "base",
        "was deleted",
        "no nvidia/cuda tag fits TensorFlow 1.15 any more",
        id="deleted-10.0",
    ),
    pytest.param(spec("2.3.4", accelerator=GPU), "tensorflow", "no base with CUDA 10.1", "2.4", id="no-base-any-more"),
    pytest.param(
        spec("2.15.1", accelerator=GPU, base=cuda("12.2.2-base-ubuntu22.04")),
        "base",
        "only the CUDA runtime",
        "12.2.2-cudnn8-runtime-ubuntu22.04",
        id="flavour-base",
    ),
    pytest.param(
        spec("2.15.1", accelerator=GPU, base="python:3.10-slim"),
        "base",
        "has no CUDA",
        "cuda_from: wheels",
        id="no-cuda",
    ),
    pytest.param(spec("2.15.1", base="python:3.10-alpine"), "base", "musl", "bookworm", id="musl"),
    pytest.param(
        spec("2.13.1", accelerator=GPU, cuda_from="wheels"), "cuda_from", "no extra and-cuda", "base", id="no-extra"
    ),
    pytest.param(
        spec("2.14.1", accelerator=GPU, cuda_from="wheels", python="3.11"),
        "cuda_from",
        "tensorrt 8.5.3.1",
        "Python 3.10",
        id="and-cuda-2.14-3.11",
    ),
    pytest.param(
        spec("2.15.0", accelerator=GPU, cuda_from="wheels"),
        "cuda_from",
        "tensorrt-libs",
        "2.15.1",
        id="and-cuda-2.15.0",
    ),
    pytest.param(
        spec("2.16.1", accelerator=GPU, cuda_from="wheels"), "cuda_from", "finds no GPU", "2.16.2", id="and-cuda-2.16.1"
    ),
    pytest.param(
        spec("2.4.4", {Role.WORKER: RoleSpec(tpu=Tpu(type="TPU_V3", tf_version="2.3"))}),
        "roles.worker.tpu.tf_version",
        "tpuTfVersion 2.3 is not the image's TensorFlow 2.4",
        '"2.4"',
        id="tpu-tf-version",
    ),
    pytest.param(
        spec("2.4.4", {Role.WORKER: RoleSpec(tpu=Tpu(type="TPU_V3", tf_version="2.4"), accelerator=CPU)}),
        "roles.worker.tpu",
        "computes on cpu",
        "accelerator: tpu",
        id="tpu-on-a-cpu-role",
    ),
    pytest.param(
        spec("2.19.1", accelerator=TPU, base=cuda("12.6.3-cudnn-runtime-ubuntu22.04")),
        "base",
        "TPU role on an nvidia/cuda base",
        "slim Python",
        id="tpu-on-cuda",
    ),
    pytest.param(
        spec("2.19.1", {Role.WORKER: RoleSpec(tpu=Tpu(type="v6e"))}), "roles.worker.tpu.type", "v6e", "v5e", id="v6e"
    ),
    pytest.param(
        spec("2.18.1", accelerator=TPU), "tensorflow", "no tensorflow-tpu 2.18.1", "2.18.0", id="no-tpu-wheel"
    ),
    pytest.param(
        spec("2.21.0", gpu("NVIDIA_B200")),
        "roles.master.gpus.type",
        "no TensorFlow wheel runs on B200",
        "older GPU",
        id="blackwell",
    ),
    pytest.param(
        spec("2.15.1", gpu("NVIDIA_TESLA_K80")), "roles.master.gpus.type", "capability 3.7", "newer GPU", id="kepler"
    ),
]


@pytest.mark.parametrize(("asked", "field", "message", "hint"), REFUSED)
def test_refused(matrix: Matrix, asked: ImageSpec, field: str, message: str, hint: str) -> None:
    with pytest.raises(FieldError) as caught:
        resolve(asked, matrix)
    assert caught.value.field == field
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 3


WARNED = [
    pytest.param(spec("2.15.1", gpu("NVIDIA_H100_80GB")), "no code for H100", id="h100-jit"),
    pytest.param(spec("2.11.1", gpu("NVIDIA_L4")), "older than L4", id="cuda-older-than-gpu"),
    pytest.param(spec("2.5.3", gpu("NVIDIA_TESLA_V100")), "no longer rebuilds", id="unsupported-tag"),
    pytest.param(
        spec("2.16.2", accelerator=GPU, base=cuda("12.2.2-cudnn8-runtime-ubuntu22.04")),
        "older than the 12.3",
        id="cuda-minor-older",
    ),
    pytest.param(
        spec("2.15.1", accelerator=GPU, cuda_from="wheels", base=cuda("12.2.2-cudnn8-runtime-ubuntu22.04")),
        "brings a second one",
        id="and-cuda-on-a-cuda-base",
    ),
    pytest.param(
        spec("2.15.1", accelerator=GPU, base=cuda("12.2.9-cudnn8-runtime-ubuntu22.04")),
        "not in the version matrix",
        id="unknown-tag",
    ),
    pytest.param(
        spec("2.15.1", {Role.PS: RoleSpec(base=cuda("12.2.2-cudnn8-runtime-ubuntu22.04"))}),
        "of no use",
        id="cuda-base-for-a-cpu-role",
    ),
    pytest.param(
        spec("2.18.1", accelerator=GPU, env={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}),
        "/usr/local/nvidia/lib64",
        id="own-library-path",
    ),
    pytest.param(spec("2.12.1", accelerator=GPU), "XLA_FLAGS", id="xla-2.12"),
    pytest.param(
        spec("2.10.1", {Role.WORKER: RoleSpec(tpu=Tpu(type="TPU_V3"))}, job=JobSpec(target=Target.AI_PLATFORM)),
        "not known",
        id="tpu-tf-unknown",
    ),
    pytest.param(
        spec("2.12.1", {Role.WORKER: RoleSpec(tpu=Tpu(type="v3"))}, job=JobSpec(target=Target.VERTEX)),
        "TPU VM",
        id="tpu-vm-before-2.16",
    ),
]


@pytest.mark.parametrize(("asked", "message"), WARNED)
def test_warned(matrix: Matrix, asked: ImageSpec, message: str) -> None:
    resolution = resolve(asked, matrix)
    assert any(message in warning for warning in resolution.warnings), resolution.warnings
    assert any(message in note for variant in resolution.variants for note in variant.notes)


QUIET = [
    spec("2.15.1", gpu("NVIDIA_TESLA_T4")),
    spec("2.16.2", gpu("NVIDIA_H100_80GB")),
    spec("2.14.1", gpu("NVIDIA_TESLA_K80")),
    spec("2.14.1", accelerator=GPU, cuda_from="wheels", python="3.10"),
    spec("2.15.0.post1", accelerator=GPU, cuda_from="wheels"),
    spec("2.4.4", {Role.WORKER: RoleSpec(tpu=Tpu(type="TPU_V3", tf_version="2.4"))}),
    # 12.8.1 and 12.9.x lack the driver's folder in LD_LIBRARY_PATH; our images always set it
    spec("2.18.1", accelerator=GPU, base=cuda("12.8.1-cudnn-runtime-ubuntu22.04")),
    spec("2.18.1", accelerator=GPU, base=cuda("12.9.1-cudnn-runtime-ubuntu24.04")),
    spec("2.18.1", accelerator=CPU, env={"LD_LIBRARY_PATH": "/opt/lib"}),
    spec("2.12.1", accelerator=GPU, env={"XLA_FLAGS": "--xla_gpu_cuda_data_dir=/x"}),
]


@pytest.mark.parametrize("asked", QUIET, ids=range(len(QUIET)))
def test_what_fits_is_not_talked_about(matrix: Matrix, asked: ImageSpec) -> None:
    assert resolve(asked, matrix).warnings == ()


def test_several_errors_come_together(matrix: Matrix) -> None:
    roles = {
        Role.MASTER: RoleSpec(gpus=Gpus(type="NVIDIA_L4"), base=cuda("12.5.1-cudnn-runtime-ubuntu22.04")),
        Role.WORKER: RoleSpec(gpus=Gpus(type="NVIDIA_L4"), base=cuda("11.8.0-cudnn8-runtime-ubuntu22.04")),
    }
    with pytest.raises(FieldListError) as caught:
        resolve(spec("2.18.1", roles), matrix)
    assert [error.field for error in caught.value.errors] == ["roles.master.base", "roles.worker.base"]


def test_libtpu_needs_googles_page(matrix: Matrix) -> None:
    release = matrix.release("2.17.1", TENSORFLOW)[1]
    (finding,) = check_libtpu(release, matrix, ("/opt/wheels",))
    assert finding.field == "tensorflow"
    assert "libtpu==2.17.1" in finding.message
    assert "UV_FIND_LINKS" in finding.hint
    assert check_libtpu(release, matrix, (matrix.tpu_find_links,)) == []
    assert check_libtpu(matrix.release("2.19.1", TENSORFLOW)[1], matrix, ()) == []


# release, accelerator, line, message or None, whether it is an error
REQUIREMENTS = [
    ("2.15.1", CPU, "setuptools>=82", "setuptools<81", True),
    ("2.10.1", CPU, "numpy==2.0.1", "numpy<2", True),
    ("2.10.1", CPU, "numpy>=1.24,<3", None, False),
    ("2.5.3", CPU, "protobuf~=3.21.0", "protobuf<3.21", True),
    ("2.15.1", CPU, "numpy==2.1.0", "numpy<2.0.0,>=1.23.5", True),
    ("2.15.1", CPU, "numpy", None, False),
    ("2.15.1", CPU, "keras>=3", "needs keras", True),
    ("2.15.1", CPU, "Keras>=3 ; python_version < '3'", None, False),
    ("2.16.2", CPU, "numpy<1.26", "needs numpy", True),  # Python 3.12 here: its marker asks for 1.26
    ("2.15.1", CPU, "tensorflow==2.15.1", None, False),
    ("2.15.1", CPU, "tf-nightly-gpu", "tf-nightly-gpu is another TensorFlow than the spec's 2.15.1", True),
    ("2.15.1", CPU, "tensorflow-probability", None, False),
    ("2.15.1", CPU, "tensorflow-gpu==2.15.1", "the last tensorflow-gpu with a wheel is 2.11.0", True),
    ("2.15.1", CPU, "tensorflow[and-cuda]", "no CUDA for master, which have no GPU", False),
    ("2.15.1", GPU, "tensorflow==2.15.1", None, False),
    ("2.15.1", GPU, "tensorflow==2.14.0", "is not the spec's TensorFlow 2.15.1", True),
    ("2.11.1", GPU, "tensorflow-gpu==2.11.1", "the last tensorflow-gpu with a wheel is 2.11.0", True),
    ("2.15.1", GPU, "tensorflow-gpu===nightly", "is not the spec's TensorFlow 2.15.1", True),
    ("2.15.1", GPU, "tensorflow[and-cuda]==2.15.1", "brings a second CUDA", False),
    ("2.15.1", GPU, "nvidia-cudnn-cu12==8.9.7.29", "brings a second CUDA", False),
    ("2.15.1", CPU, "nvidia-cudnn-cu12==8.9.7.29", None, False),
]


@pytest.mark.parametrize(("release", "accelerator", "line", "message", "is_error"), REQUIREMENTS)
def test_requirements(
    matrix: Matrix, *, release: str, accelerator: Accelerator, line: str, message: str | None, is_error: bool
) -> None:
    (variant,) = resolve(spec(release, accelerator=accelerator), matrix).variants
    named = parse_requirements((("requirements.txt", f"# first\n{line}\n"),))
    minor, of_release = matrix.release(release, TENSORFLOW)
    platform, gpu = "linux/amd64", accelerator is GPU
    findings = check_requirements(named, variant, minor, of_release, platform=platform, cuda_base=gpu)
    if message is None:
        assert findings == []
        return
    (finding,) = findings
    assert message in finding.message
    assert finding.message.startswith("requirements.txt:2: ")
    assert finding.warning is not is_error
    if is_error:
        with pytest.raises(FieldError) as caught:
            raise_errors(findings)
        assert caught.value.field == "requirements"


@pytest.mark.parametrize(("python", "fits"), [("3.11", True), ("3.12", False)])
def test_what_tensorflow_needs_for_another_python_does_not_count(matrix: Matrix, python: str, fits: bool) -> None:
    (variant,) = resolve(spec("2.16.2", python=python), matrix).variants
    named = parse_requirements((("requirements.txt", "numpy<1.26\n"),))
    findings = check_requirements(
        named, variant, *matrix.release("2.16.2", TENSORFLOW), platform="linux/amd64", cuda_base=False
    )
    assert (not findings) is fits


def test_tensorflow_gpu_is_chosen_where_the_plain_wheel_is_for_cpus(matrix: Matrix) -> None:
    for release in ("1.14.0", "1.15.5", "2.0.4"):
        own = spec(release, accelerator=GPU, base="registry.example.com/cuda10:1", python="3.7")
        assert resolve(own, matrix).variants[0].package == "tensorflow-gpu"
    own = spec("1.15.0", accelerator=GPU, base="registry.example.com/cuda10:1", python="3.7")
    assert resolve(own, matrix).variants[0].package == "tensorflow"
