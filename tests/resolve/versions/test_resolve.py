"""What the resolver chooses for every TensorFlow minor, and how Python, bases and roles shape it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.spec import Accelerator, Gpus, ImageSpec, Role, RoleSpec, Tpu
from training_imgtool.resolve.frameworks.tensorflow.install import libraries
from training_imgtool.resolve.versions.matrix import Matrix, gpu_of, load_matrix
from training_imgtool.resolve.versions.request import INIT_PACKAGE
from training_imgtool.resolve.versions.resolve import resolve

CPU, GPU, TPU = Accelerator.CPU, Accelerator.GPU, Accelerator.TPU


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix()


def spec(tensorflow: str, roles: Mapping[Role, RoleSpec] | None = None, **more: Any) -> ImageSpec:
    return ImageSpec(name="mnist", tensorflow=tensorflow, roles=roles or {Role.MASTER: RoleSpec()}, **more)


# release, Python, nvidia/cuda tag, cuDNN inside, what else is installed
GPU_TABLE = [
    ("2.4.4", "3.8", "11.0.3-cudnn8-runtime-ubuntu20.04", "8.0.5.39", ()),
    ("2.5.3", "3.8", "11.2.2-cudnn8-runtime-ubuntu20.04", "8.1.1.33", ()),
    ("2.11.1", "3.8", "11.2.2-cudnn8-runtime-ubuntu20.04", "8.1.1.33", ("nvidia-cuda-nvcc-cu11==11.8.89",)),
    ("2.12.1", "3.10", "11.8.0-cudnn8-runtime-ubuntu22.04", "8.9.6.50", ("nvidia-cuda-nvcc-cu11==11.8.89",)),
    ("2.15.1", "3.10", "12.2.2-cudnn8-runtime-ubuntu22.04", "8.9.6.50", ("nvidia-cuda-nvcc-cu12==12.2.140",)),
    ("2.16.2", "3.10", "12.3.2-runtime-ubuntu22.04", "8.9.7.29", ("nvidia-cuda-nvcc-cu12==12.3.107",)),
    ("2.18.1", "3.10", "12.6.3-cudnn-runtime-ubuntu22.04", "9.5.1.17", ("nvidia-cuda-nvcc-cu12==12.5.82",)),
    (
        "2.21.0",
        "3.10",
        "12.6.3-cudnn-runtime-ubuntu22.04",
        "9.5.1.17",
        ("tensorboard", "nvidia-cuda-nvcc-cu12==12.5.82"),
    ),
]


@pytest.mark.parametrize(("release", "python", "tag", "cudnn", "more"), GPU_TABLE)
def test_gpu_table(matrix: Matrix, *, release: str, python: str, tag: str, cudnn: str, more: tuple[str, ...]) -> None:
    (variant,) = resolve(spec(release, accelerator=GPU), matrix).variants
    assert (variant.name, variant.package, variant.python) == ("gpu", "tensorflow", python)
    assert (variant.base, variant.cudnn) == (f"nvidia/cuda:{tag}", cudnn)
    assert variant.cuda == tag.partition("-")[0]
    assert (variant.python_from, variant.python_executable) == ("apt", f"/usr/bin/python{python}")
    assert variant.requirements == (f"tensorflow=={release}", *more, INIT_PACKAGE)
    assert variant.libraries[-1] == f"libcudnn.so.{cudnn.partition('.')[0]}"


CPU_TABLE = [
    ("1.15.0", "tensorflow-cpu", "3.7"),
    ("1.15.5", "tensorflow", "3.7"),
    ("2.0.4", "tensorflow", "3.7"),
    ("2.1.4", "tensorflow-cpu", "3.7"),
    ("2.2.3", "tensorflow-cpu", "3.8"),
    ("2.5.3", "tensorflow-cpu", "3.9"),
    ("2.8.4", "tensorflow-cpu", "3.10"),
    ("2.12.1", "tensorflow-cpu", "3.11"),
    ("2.16.2", "tensorflow-cpu", "3.12"),
    ("2.20.0", "tensorflow-cpu", "3.13"),
]


@pytest.mark.parametrize(("release", "package", "python"), CPU_TABLE)
def test_cpu_table(matrix: Matrix, release: str, package: str, python: str) -> None:
    (variant,) = resolve(spec(release), matrix).variants
    assert (variant.name, variant.package, variant.python) == ("cpu", package, python)
    assert variant.base == f"python:{python}-slim-bookworm"
    assert (variant.os, variant.python_from) == ("debian12", "image")
    assert variant.python_executable == f"/usr/local/bin/python{python}"
    assert (variant.cuda, variant.cudnn, variant.libraries) == (None, None, ())


def test_every_release_resolves_for_the_cpu_and_from_2_4_for_gpus(matrix: Matrix) -> None:
    for minor in matrix.minors.values():
        for release in minor.releases.values():
            assert resolve(spec(release.version), matrix).variants[0].python in release.pythons
            if minor.bases:
                (variant,) = resolve(spec(release.version, accelerator=GPU), matrix).variants
                assert variant.python in release.pythons


@pytest.mark.parametrize(
    ("release", "package", "python"),
    [("2.19.1", "tensorflow-tpu", "3.12"), ("2.16.1", "tensorflow-tpu", "3.12"), ("2.4.4", "tensorflow-cpu", "3.8")],
)
def test_tpu(matrix: Matrix, release: str, package: str, python: str) -> None:
    (variant,) = resolve(spec(release, accelerator=TPU), matrix).variants
    assert (variant.name, variant.package, variant.base) == ("tpu", package, f"python:{python}-slim-bookworm")


def test_python_3_6_has_its_last_image(matrix: Matrix) -> None:
    (variant,) = resolve(spec("1.15.5", python="3.6"), matrix).variants
    assert (variant.base, variant.os) == ("python:3.6-slim-bullseye", "debian11")


def test_roles_share_python_which_the_gpu_base_decides(matrix: Matrix) -> None:
    roles = {
        Role.PS: RoleSpec(),
        Role.MASTER: RoleSpec(gpus=Gpus(type="NVIDIA_TESLA_V100")),
        Role.WORKER: RoleSpec(gpus=Gpus(type="NVIDIA_TESLA_V100"), count=3),
        Role.EVALUATOR: RoleSpec(accelerator=CPU),
    }
    gpu, cpu = resolve(spec("2.15.1", roles), matrix).variants
    assert (gpu.name, gpu.roles) == ("gpu", (Role.MASTER, Role.WORKER))
    assert (cpu.name, cpu.roles) == ("cpu", (Role.PS, Role.EVALUATOR))
    assert gpu.python == cpu.python == "3.10"
    assert cpu.base == "python:3.10-slim-bookworm"
    assert (gpu.package, cpu.package) == ("tensorflow", "tensorflow-cpu")


@pytest.mark.parametrize(
    ("release", "python", "tag", "source"),
    [
        ("2.15.1", "3.11", "12.2.2-cudnn8-runtime-ubuntu22.04", "deadsnakes"),
        ("2.18.1", "3.12", "12.6.3-cudnn-runtime-ubuntu24.04", "apt"),  # its own Python before deadsnakes
        ("2.8.4", "3.10", "11.8.0-cudnn8-runtime-ubuntu22.04", "apt"),
    ],
)
def test_the_users_python_chooses_the_base(matrix: Matrix, release: str, python: str, tag: str, source: str) -> None:
    (variant,) = resolve(spec(release, accelerator=GPU, python=python), matrix).variants
    assert (variant.base, variant.python, variant.python_from) == (f"nvidia/cuda:{tag}", python, source)


@pytest.mark.parametrize(
    ("base", "python", "os", "executable"),
    [
        ("python:3.10-slim", "3.10", None, "/usr/local/bin/python3.10"),
        ("127.0.0.1:5000/library/python:3.11-slim-bookworm", "3.11", "debian12", "/usr/local/bin/python3.11"),
        ("registry.example.com/proxy/library/python:3.9.18-bullseye", "3.9", "debian11", "/usr/local/bin/python3.9"),
        ("ubuntu:22.04", "3.10", "ubuntu22.04", "/usr/bin/python3.10"),
        ("ubuntu:jammy-20240101", "3.10", "ubuntu22.04", "/usr/bin/python3.10"),
        ("debian:bookworm-slim", "3.11", "debian12", "/usr/bin/python3.11"),
    ],
)
def test_known_bases_of_the_user(matrix: Matrix, base: str, python: str, os: str | None, executable: str) -> None:
    resolution = resolve(spec("2.15.1", base=base), matrix)
    (variant,) = resolution.variants
    assert (variant.base, variant.python, variant.os, variant.python_executable) == (base, python, os, executable)
    assert resolution.warnings == ()


def test_unknown_base_is_taken_as_given_with_a_warning(matrix: Matrix) -> None:
    resolution = resolve(
        spec("2.15.1", base="registry.example.com/team/base:7", python="3.10", accelerator=GPU), matrix
    )
    (variant,) = resolution.variants
    assert (variant.os, variant.python_executable) == (None, "/usr/bin/python3.10")
    assert (variant.cuda, variant.cudnn) == ("12.2", "8.9")  # what the build checks for
    assert "what is in it is not known" in resolution.warnings[0]
    assert variant.notes == resolution.warnings


def test_mirrored_cuda_base_is_recognised(matrix: Matrix) -> None:
    base = "127.0.0.1:5000/nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04"
    resolution = resolve(spec("2.15.1", base=base, accelerator=GPU), matrix)
    (variant,) = resolution.variants
    assert (variant.base, variant.cuda, variant.cudnn, variant.os) == (base, "12.2.2", "8.9.6.50", "ubuntu22.04")
    assert resolution.warnings == ()
    proxied = base.replace("nvidia", "proxy/nvidia").replace("runtime", "devel") + "@sha256:" + "a" * 64
    assert resolve(spec("2.15.1", base=proxied, accelerator=GPU), matrix).variants[0].cudnn == "8.9.6.50"


def test_cuda_base_at_the_top_is_for_the_gpu_roles(matrix: Matrix) -> None:
    roles = {Role.MASTER: RoleSpec(gpus=Gpus(type="NVIDIA_L4")), Role.PS: RoleSpec()}
    base = "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04"
    gpu, cpu = resolve(spec("2.18.1", roles, base=base), matrix).variants
    assert (gpu.base, gpu.python) == (base, "3.12")
    assert (cpu.base, cpu.python) == ("python:3.12-slim-bookworm", "3.12")


def test_a_role_with_its_own_base_has_its_own_variant(matrix: Matrix) -> None:
    roles = {Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec(base="python:3.10-bookworm"), Role.PS: RoleSpec()}
    cpu, worker = resolve(spec("2.15.1", roles), matrix).variants
    assert (cpu.name, cpu.roles, cpu.python) == ("cpu", (Role.MASTER, Role.PS), "3.10")
    assert (worker.name, worker.roles, worker.base) == ("worker", (Role.WORKER,), "python:3.10-bookworm")


def test_apt_completes_a_base(matrix: Matrix) -> None:
    (variant,) = resolve(spec("2.17.1", accelerator=GPU), matrix).variants
    assert variant.apt == ("libcudnn8=8.9.7.29-1+cuda12.2",)
    own = "127.0.0.1:5000/nvidia/cuda:12.3.2-runtime-ubuntu22.04"
    assert resolve(spec("2.17.1", accelerator=GPU, base=own), matrix).variants[0].apt == variant.apt


def test_cuda_from_wheels(matrix: Matrix) -> None:
    (variant,) = resolve(spec("2.15.1", accelerator=GPU, cuda_from="wheels"), matrix).variants
    assert variant.requirements == ("tensorflow[and-cuda]==2.15.1", INIT_PACKAGE)
    assert (variant.base, variant.cuda, variant.cudnn) == ("python:3.11-slim-bookworm", "12.2", "8.9.4.25")
    assert variant.libraries == ()  # they lie in site-packages, where no linker looks
    (ranges,) = resolve(spec("2.20.0", accelerator=GPU, cuda_from="wheels"), matrix).variants
    assert "nvidia-cudnn-cu12==9.3.0.75" in ranges.constraints  # at the lower bound: 1.8 GB, not 2.8


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA_TESLA_V100", "V100"),
        ("NVIDIA_A100_80GB", "A100"),
        ("NVIDIA_H100_MEGA_80GB", "H100"),
        ("NVIDIA_RTX_PRO_6000", "RTX_PRO_6000"),
        ("ecs.gn7i-c8g1", None),
    ],
)
def test_gpus_by_the_services_words(matrix: Matrix, name: str, gpu: str | None) -> None:
    found = gpu_of(name, matrix)
    assert (found.name if found else None) == gpu


def test_libraries_by_cuda(matrix: Matrix) -> None:
    assert "libcusolver.so.10" in libraries(matrix.minors["2.4"])
    assert "libcusolver.so.11" in libraries(matrix.minors["2.5"])
    assert libraries(matrix.minors["2.18"])[0] == "libcudart.so.12"
    assert libraries(matrix.minors["2.18"])[-1] == "libcudnn.so.9"


def test_platforms(matrix: Matrix) -> None:
    (arm,) = resolve(spec("2.15.1", platform="linux/arm64"), matrix).variants
    assert arm.package == "tensorflow"
    for release, accelerator, platform in [
        ("2.9.3", CPU, "linux/arm64"),
        ("2.15.1", GPU, "linux/arm64"),
        ("2.15.1", CPU, "linux/s390x"),
    ]:
        with pytest.raises(FieldError) as caught:
            resolve(spec(release, accelerator=accelerator, platform=platform), matrix)
        assert caught.value.field == "platform"


def test_two_bases_with_different_pythons(matrix: Matrix) -> None:
    roles = {Role.MASTER: RoleSpec(base="python:3.10-slim"), Role.PS: RoleSpec(base="python:3.11-slim")}
    with pytest.raises(FieldError, match=r"python:3.11-slim has no Python 3.10") as caught:
        resolve(spec("2.15.1", roles), matrix)
    assert caught.value.field == "roles.ps.base"


def test_tpu_worker_beside_cpu_roles(matrix: Matrix) -> None:
    roles = {Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec(tpu=Tpu(type="TPU_V3", tf_version="2.4"))}
    cpu, tpu = resolve(spec("2.4.4", roles), matrix).variants
    assert (cpu.package, tpu.package, tpu.base) == ("tensorflow-cpu", "tensorflow-cpu", "python:3.8-slim-bookworm")
