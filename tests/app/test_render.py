from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from tests import plans
from training_imgtool.app.render import BAKE_FILE, MARKER, RenderedRole, docker_bake, export
from training_imgtool.base.context.context import Context, scan
from training_imgtool.base.context.entries import Entry, Kind
from training_imgtool.base.errors import LocalFileError
from training_imgtool.model.recipe.printing import print_dockerfile
from training_imgtool.model.spec import Role


@pytest.fixture
def context(tmp_path: Path) -> Context:
    folder = tmp_path / "spec"
    (folder / "trainer" / "empty").mkdir(parents=True)
    (folder / "trainer" / "task.py").write_text("print(1)\n")
    (folder / "trainer" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "trainer" / "run.sh").chmod(0o711)
    (folder / "trainer" / "link").symlink_to("task.py")
    wheel = tmp_path / "numpy.whl"
    wheel.write_bytes(b"numpy")
    digest = hashlib.sha256(b"numpy").hexdigest()
    entry = Entry(path="numpy.whl", kind=Kind.FILE, mode=0o644, size=5, sha256=digest, origin=wheel)
    return scan(folder).below("code").joined(Context((entry,)).below("wheels/cpu"))


def rendered(*roles: Role) -> tuple[RenderedRole, ...]:
    text = print_dockerfile(plans.recipe(), "a" * 64)
    return tuple(
        RenderedRole(role=role, text=text, tags=(f"registry.example.com/mnist:{role}-aaaa",)) for role in roles
    )


def test_the_bake_file() -> None:
    roles = rendered(Role.MASTER, Role.WORKER)
    document = json.loads(docker_bake((roles[0], dataclasses.replace(roles[1], tags=())), "linux/amd64"))
    assert document == {
        "group": {"default": {"targets": ["master", "worker"]}},
        "target": {
            "master": {
                "context": "context",
                "dockerfile": "../master.Dockerfile",
                "platforms": ["linux/amd64"],
                "tags": ["registry.example.com/mnist:master-aaaa"],
            },
            "worker": {"context": "context", "dockerfile": "../worker.Dockerfile", "platforms": ["linux/amd64"]},
        },
    }


def test_an_export_holds_the_context(context: Context, tmp_path: Path) -> None:
    output = tmp_path / "a" / "out"
    roles = rendered(Role.MASTER, Role.WORKER)
    export(output, roles, context, "linux/amd64")
    assert {path.name for path in output.iterdir()} == {
        MARKER,
        BAKE_FILE,
        "context",
        "master.Dockerfile",
        "worker.Dockerfile",
    }
    assert (output / "worker.Dockerfile").read_text() == roles[1].text
    written = scan(output / "context")
    assert [(one.path, one.mode, one.sha256) for one in written.entries] == [
        (one.path, one.mode, one.sha256) for one in context.entries
    ]
    assert (output / "context/wheels/cpu/numpy.whl").stat().st_nlink == 2
    assert (output / "context/code/trainer/run.sh").stat().st_mode & 0o777 == 0o755


def test_an_export_replaces_its_own_and_nothing_else(context: Context, tmp_path: Path) -> None:
    output = tmp_path / "out"
    export(output, rendered(Role.MASTER, Role.WORKER), context, "linux/amd64")
    (output / "notes.txt").write_text("mine")
    (output / "context" / "old").write_text("stale")
    export(output, rendered(Role.WORKER), context, "linux/amd64")
    assert not (output / "master.Dockerfile").exists()
    assert not (output / "context" / "old").exists()
    assert (output / "notes.txt").read_text() == "mine"


def test_a_change_that_keeps_a_files_size_has_another_time(tmp_path: Path) -> None:
    """BuildKit takes a file whose size and time are the same for the one that it has."""
    times = []
    for text in ("lr = 0.1\n", "lr = 0.2\n", "lr = 0.1\n"):
        (tmp_path / "spec/trainer").mkdir(parents=True, exist_ok=True)
        (tmp_path / "spec/trainer/task.py").write_text(text)
        role = RenderedRole(role=Role.WORKER, text="FROM scratch\nCOPY trainer/ /app/\n", tags=())
        export(tmp_path / "out", (role,), scan(tmp_path / "spec"), "linux/amd64")
        times.append((tmp_path / "out/context/trainer/task.py").stat().st_mtime)
    assert times[0] == times[2] != times[1]
    assert min(times) >= 315532800  # 1980: zip files know no time before


def test_a_strangers_folder_is_left_alone(context: Context, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(LocalFileError, match="is not empty") as caught:
        export(tmp_path / "full", rendered(Role.WORKER), context, "linux/amd64")
    assert caught.value.exit_code == 9
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious"]


def test_a_forged_marker_deletes_nothing_else(context: Context, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (tmp_path / "precious").write_text("x")
    (output / "kept.txt").write_text("x")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("x")
    (output / "context").symlink_to(tmp_path / "far")
    (output / MARKER).write_text(json.dumps(["../precious", "kept.txt", "context", str(tmp_path / "far"), 5]))
    export(output, rendered(Role.WORKER), context, "linux/amd64")
    assert (tmp_path / "precious").exists()
    assert (output / "kept.txt").exists()
    assert (tmp_path / "far" / "file").exists()
    (output / MARKER).write_text("{")
    with pytest.raises(LocalFileError, match="is damaged"):
        export(output, rendered(Role.WORKER), context, "linux/amd64")


def test_what_cannot_be_written(context: Context, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalFileError, match=r"cannot write .*file: "):
        export(tmp_path / "file", rendered(Role.WORKER), context, "linux/amd64")
