"""What names a library, and what only looks like it."""

from __future__ import annotations

import pytest

from training_imgtool.versions.trim_rules import TRIM_RULES, named_in_elf, named_in_source, rule_of


@pytest.mark.parametrize(
    ("path", "rule", "top"),
    [
        ("nvidia/nccl/lib/libnccl.so.2", "nccl", "nvidia/nccl/lib/libnccl.so.2"),
        ("nvidia/cusolver/lib/libcusolverMg.so.11", "cusolverMg", "nvidia/cusolver/lib/libcusolverMg.so.11"),
        ("nvidia/cuda_nvcc/nvvm/include/nvvm.h", "headers of CUDA", "nvidia/cuda_nvcc/nvvm/include"),
        ("nvidia/cuda_runtime/lib/libcudadevrt.a", "headers of CUDA", "nvidia/cuda_runtime/lib/libcudadevrt.a"),
        ("tensorflow/include/a/b.h", "headers of TensorFlow", "tensorflow/include"),
        ("clang/native/libclang.so", "libclang", "clang"),
    ],
)
def test_paths(path: str, rule: str, top: str) -> None:
    match = rule_of(path)
    assert match is not None
    assert (match[0].name, match[1]) == (rule, top)


@pytest.mark.parametrize(
    "path",
    [
        "nvidia/cusolver/lib/libcusolver.so.11",
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cuda_nvcc/bin/ptxas",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "nvidia/nccl/lib/libnccl.so.2.py",
        "clang.py",
        "other/nvidia/nccl/lib/libnccl.so.2",
        "tensorflow/include_not/x.h",
    ],
)
def test_no_rule_is_about_it(path: str) -> None:
    assert rule_of(path) is None


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        ({b"libnccl.so"}, {"nccl"}),
        ({b"ncclCommInit"}, {"nccl"}),  # a stub that looks it up by name
        ({b"ncclCommInit", b"libnccl-net"}, set()),  # linked statically
        ({b"ncclCommInit", b"libnccl-net", b"libnccl.so"}, {"nccl"}),
        ({b"curandCreateGenerator"}, {"curand"}),
        ({b"libnvrtc"}, {"headers of CUDA"}),
        (set(), set()),
    ],
)
def test_elf(tokens: set[bytes], names: set[str]) -> None:
    assert named_in_elf(frozenset(tokens)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b'ctypes.CDLL("libnccl.so.2")', {"nccl"}),
        (b"ctypes.util.find_library('curand')", {"curand"}),
        (b"import nvidia.nccl as n", {"nccl"}),
        (b"from nvidia.curand import lib", {"curand"}),
        (b"import nvidia.cusolver", set()),  # for libcusolver, which stays
        (b"from clang import cindex", {"libclang"}),
        (b"    'libclang >= 13.0.0',", set()),
        (b"tf.sysconfig.get_include()", {"headers of TensorFlow"}),
        (b"sysconfig.get_python_inc()", set()),
        (b"strategy = 'NCCL'", set()),
    ],
)
def test_source(text: bytes, names: set[str]) -> None:
    assert named_in_source(text) == names


def test_every_library_is_kept_by_its_own_soname() -> None:
    sonames = ["libnccl.so.2", "libcurand.so.10", "libcusolverMg.so.11", "libnvblas.so.12", "libcufftw.so.11"]
    for soname, rule in zip(sonames, TRIM_RULES, strict=False):
        assert any(word in soname.encode() for word in rule.words), rule.name
