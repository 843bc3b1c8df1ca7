"""Which libraries the user's own files keep, through `imgtool show`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.project import SPEC, Project
from training_imgtool.base.context.context import Context, scan
from training_imgtool.model.load import load
from training_imgtool.model.lock import UnusedPath
from training_imgtool.model.spec import ImageSpec
from training_imgtool.plan.named_libraries import named_by_user
from training_imgtool.resolve.lock.lockfile import dump_lock, read_lock

NCCL = "nvidia/nccl/lib/libnccl.so.2"
UNUSED = (
    UnusedPath(path=NCCL, size=256_561_472, rule="nccl"),
    UnusedPath(path="nvidia/cublas/lib/libnvblas.so.12", size=728_856, rule="nvblas"),
)


def _with_unused(project: Project, text: str) -> None:
    project.spec(text)
    path = project.folder / "image.lock"
    lock = read_lock(path)
    variants = tuple(replace(locked, unused=UNUSED) for locked in lock.variants)
    path.write_text(dump_lock(replace(lock, variants=variants)))


def test_show_and_render(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("trainer/comm.py", b'import ctypes\nctypes.CDLL("libnvblas.so.12")\n')
    _with_unused(project, SPEC)
    text = project.run("show", "--locked").out
    assert "trimmed     256.6 MB uncompressed" in text
    assert f"256.6 MB  {NCCL}" in text
    assert "keeps       nvidia/cublas/lib/libnvblas.so.12: trainer/comm.py names it" in text
    rendered = project.run("render", "--role", "worker").out
    assert f"rm -rf /opt/venv/lib/python3.11/site-packages/{NCCL}" in rendered
    assert "libnvblas" not in rendered
    _with_unused(project, SPEC + "trim: false\n")
    assert "trimmed" not in project.run("show", "--locked").out


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("trainer/comm.py", b'import ctypes\nctypes.CDLL("libnccl.so.2")\n'),
        ("trainer/op.so", b"\x7fELF...libnccl.so.2..."),
        ("trainer/op.so.1", b"\x7fELF...ncclCommInitRank..."),
        ("start.sh", b"export LD_PRELOAD=libnccl.so.2"),
    ],
)
def test_code_names(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    assert named_by_user(_spec(tmp_path), tmp_path, scan(tmp_path)) == {"nccl": file}


def test_settings_name(tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("RUN nvcc -o op.so op.cu")
    spec = _spec(
        tmp_path, 'env: {LD_PRELOAD: libnvblas.so.12}\nargs: ["--preload=libcurand.so.10"]\ntemplate: mine.j2\n'
    )
    assert named_by_user(spec, tmp_path, Context()) == {
        "nvblas": "env.LD_PRELOAD",
        "curand": "args",
        "headers of CUDA": "mine.j2",
    }


def _spec(folder: Path, more: str = "") -> ImageSpec:
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer/task.py").touch()
    (folder / "image.yaml").write_text(SPEC + more)
    return load(folder / "image.yaml").spec
