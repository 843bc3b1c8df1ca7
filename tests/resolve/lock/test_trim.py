"""What trimming leaves out: what names a library, what only looks like it, and what a lock then calls unused."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import cast

import pytest

from tests.plans import wheel
from training_imgtool.base.errors import VerificationError
from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.resources import data_file
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.lock.trim import (
    ALWAYS,
    ELF,
    TRIM_RULES,
    WheelContents,
    WheelReader,
    find_rule,
    list_unused,
    names_in_elf,
    names_in_file,
    names_in_source,
    parse_contents,
    read_contents,
)
from training_imgtool.resolve.wheels.store import WheelStore

BLOCK = 1 << 20
NCCL = WheelContents(paths={"nvidia/nccl/lib/libnccl.so.2": (9, "nccl")}, names={"nccl": frozenset({"nccl", "curand"})})
CURAND = WheelContents(paths={"nvidia/curand/lib/libcurand.so.10": (5, "curand")})


def _user(*names: str) -> WheelContents:
    return WheelContents(names={ALWAYS: frozenset(names)})


def _paths(*rows: WheelContents) -> list[str]:
    return [unused.path for unused in list_unused(rows)]


def test_what_nothing_names_is_unused() -> None:
    assert _paths(NCCL, CURAND) == ["nvidia/curand/lib/libcurand.so.10", "nvidia/nccl/lib/libnccl.so.2"]


def test_a_user_keeps_it_and_what_it_opens() -> None:
    assert _paths(NCCL, CURAND, _user("nccl")) == []
    assert _paths(NCCL, CURAND, _user("curand")) == ["nvidia/nccl/lib/libnccl.so.2"]


def test_the_shipped_table_says_what_was_measured() -> None:
    rows = {
        row["wheel"].partition("-cp")[0]: row
        for row in json.loads(data_file("wheel_contents.json").read_bytes()).values()
    }
    assert all(parse_contents(row) for row in rows.values())
    assert rows["tensorflow-2.15.1"]["names"] == {}  # holds NCCL's code itself
    assert rows["tensorflow-2.20.0"]["names"] == {"": ["nccl"]}  # looks for libnccl.so at run time


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
    match = find_rule(path)
    assert match == (rule, top)


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
    assert find_rule(path) is None


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
    assert names_in_elf(sorted(tokens)) == names


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
    assert names_in_source(text) == names


def test_every_library_is_kept_by_its_own_soname() -> None:
    sonames = ["libnccl.so.2", "libcurand.so.10", "libcusolverMg.so.11", "libnvblas.so.12", "libcufftw.so.11"]
    for soname, rule in zip(sonames, TRIM_RULES, strict=False):
        assert any(word in soname.encode() for word in rule.words), rule.name


def write_wheel(path: Path, files: dict[str, bytes]) -> Path:
    """A zip of files, which is all of a wheel that counts here."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_paths_and_names(tmp_path: Path) -> None:
    wheel = write_wheel(
        tmp_path / "nvidia_nccl_cu12-2-py3-none-any.whl",
        {
            "nvidia/nccl/lib/libnccl.so.2": ELF + b"..libnccl.so.2..",
            "nvidia/nccl/include/nccl.h": b"libcurand",
            "nvidia/nccl/include/more.h": b"12345",
            "nvidia_nccl_cu12-2.data/platlib/clang/native/libclang.so": ELF + b"libcurand.so.10",
            "nvidia/other.so": ELF + b"libcufftw.so.11",
            "nvidia/text.md": b"libnvblas",
        },
    )
    contents = read_contents(wheel, "nvidia-nccl-cu12")
    assert contents.paths == {
        "nvidia/nccl/lib/libnccl.so.2": (20, "nccl"),
        "nvidia/nccl/include": (14, "headers of CUDA"),
        "clang": (19, "libclang"),
    }
    assert contents.names == {"nccl": {"nccl"}, "libclang": {"curand"}, ALWAYS: {"cufftw"}}
    assert parse_contents(contents.as_data()) == contents


@pytest.mark.parametrize("before", [0, 100, BLOCK - 8, BLOCK - 1, BLOCK])
def test_a_name_across_two_blocks(before: int) -> None:
    data = ELF + b"\0" * before + b"libcurand.so.10" + b"\0" * 100
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert names_in_file("x.so", blocks) == {"curand"}
    assert names_in_file("x.so", [b"\0", *blocks]) == frozenset()  # no ELF file


def test_the_owner_of_headers_may_mention_them(tmp_path: Path) -> None:
    files = {"x-1.data/scripts/a": b"tf.sysconfig.get_include()", "x/b.so": ELF + b"libnvrtc.so.12"}
    wheel = write_wheel(tmp_path / "x-1-py3-none-any.whl", files)
    assert read_contents(wheel, "tensorflow").names == {}
    for other in ("cupy-cuda12x", "tensorflow-custom-ops", "keras-custom-ops"):
        assert read_contents(wheel, other).names == {ALWAYS: {"headers of TensorFlow", "headers of CUDA"}}
    assert read_contents(wheel, "nvidia-any-cu12").names == {ALWAYS: {"headers of TensorFlow"}}


def test_a_damaged_wheel(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"a" * 10_000)
    data = bytearray(stream.getvalue())
    data[40] ^= 0xFF
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(data)
    with pytest.raises(VerificationError, match=r"a-1-py3-none-any\.whl: damaged wheel"):
        read_contents(tmp_path / "a-1-py3-none-any.whl", "a")


@pytest.mark.parametrize("data", [None, [], {"paths": {}}, {"paths": {"a": 1}, "names": {}}, {"paths": 1, "names": 2}])
def test_other_data_is_no_contents(data: object) -> None:
    assert parse_contents(data) is None


def test_wheels_without_such_files_are_not_read(tmp_path: Path) -> None:
    class Store:
        """Has one wheel, whose content cannot be read, though its directory can."""

        def fetch(self, wheels: tuple[Wheel, ...], progress: Progress) -> None:
            del wheels, progress

        def require(self, wheel: Wheel) -> Path:
            return tmp_path / wheel.file

    one = wheel("plain", "1.0")
    with zipfile.ZipFile(tmp_path / one.file, "w") as archive:
        archive.writestr("plain.py", "import nvrtc\n")
    damaged = (tmp_path / one.file).read_bytes().replace(b"import nvrtc", b"import nvrtX")
    (tmp_path / one.file).write_bytes(damaged)
    reader = WheelReader(cast("WheelStore", Store()), tmp_path / "remembered.json", silent)
    assert reader.list_unused((one,)) == ()
    assert not (tmp_path / "remembered.json").exists()
