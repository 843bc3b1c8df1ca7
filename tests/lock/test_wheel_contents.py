"""Which rules of trimming a wheel's files break."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from training_imgtool.core.errors import VerificationError
from training_imgtool.lock.wheel_contents import ALWAYS, ELF, contents_of, names_in, read_contents

BLOCK = 1 << 20


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
    assert contents_of(contents.as_data()) == contents


@pytest.mark.parametrize("before", [0, 100, BLOCK - 8, BLOCK - 1, BLOCK])
def test_a_name_across_two_blocks(before: int) -> None:
    data = ELF + b"\0" * before + b"libcurand.so.10" + b"\0" * 100
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert names_in("x.so", blocks) == {"curand"}
    assert names_in("x.so", [b"\0", *blocks]) == frozenset()  # no ELF file


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
    assert contents_of(data) is None
