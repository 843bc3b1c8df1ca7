"""The layouts of `trainer:`: which program starts, from which files, with which PYTHONPATH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training_imgtool.base.errors import FieldError
from training_imgtool.model.entry_point import find_entry_point
from training_imgtool.model.spec import Trainer

MAIN = 'if __name__ == "__main__":\n    print()\n'
CASES: dict[str, tuple[list[str], dict[str, Any], str, tuple[str, ...], str | None]] = {
    "a file beside the spec": (["train.py"], {"source": "train.py"}, ".", ("/app/train.py",), None),
    "a file with a dash": (
        ["dist-mnist/a-b.py"],
        {"source": "dist-mnist/a-b.py"},
        "dist-mnist",
        ("/app/dist-mnist/a-b.py",),
        None,
    ),
    "a module": (
        ["trainer/task.py"],
        {"source": "trainer", "module": "trainer.task"},
        "trainer",
        ("-m", "trainer.task"),
        None,
    ),
    "the usual module": (["trainer/task.py"], {}, "trainer", ("-m", "trainer.task"), None),
    "a package": (["pkg/__main__.py"], {"source": "pkg"}, "pkg", ("-m", "pkg"), None),
    "the only program": (
        ["dist-mnist/a.py", "dist-mnist/util.py:"],
        {"source": "dist-mnist"},
        "dist-mnist",
        ("/app/dist-mnist/a.py",),
        None,
    ),
    "a script that starts in its folder": (
        ["code/sub/a.py"],
        {"source": "code", "script": "sub/a.py", "workdir": "code/sub"},
        "code",
        ("/app/code/sub/a.py",),
        None,
    ),
    "a module that starts elsewhere": (
        ["pkg/train.py", "data/x.py:"],
        {"source": ".", "module": "pkg.train", "workdir": "data"},
        ".",
        ("-m", "pkg.train"),
        "/app",
    ),
    "a script": (["code/a.py", "code/b.py"], {"source": "code", "script": "b.py"}, "code", ("/app/code/b.py",), None),
    "a src layout": (
        ["src/pkg/train.py"],
        {"source": "src", "module": "pkg.train"},
        "src",
        ("-m", "pkg.train"),
        "/app/src",
    ),
    "a package below src": (
        ["src/pkg/train.py"],
        {"source": "src/pkg", "module": "pkg.train"},
        "src/pkg",
        ("-m", "pkg.train"),
        "/app/src",
    ),
    "a project with src": (
        ["src/pkg/train.py"],
        {"source": ".", "module": "pkg.train"},
        ".",
        ("-m", "pkg.train"),
        "/app/src",
    ),
    "a module of a folder": (
        ["dist-mnist/m.py"],
        {"source": "dist-mnist", "module": "m"},
        "dist-mnist",
        ("-m", "m"),
        "/app/dist-mnist",
    ),
    "all of the folder": (["pkg/train.py"], {"source": ".", "module": "pkg.train"}, ".", ("-m", "pkg.train"), None),
    "a wheel's module": (
        ["trainer/x.py"],
        {"source": "trainer", "module": "installed.main"},
        "trainer",
        ("-m", "installed.main"),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts(name: str, tmp_path: Path) -> None:
    files, trainer, folder, arguments, python_path = CASES[name]
    for file in files:
        path, _, text = file.partition(":")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text if ":" in file else MAIN)
    entry = find_entry_point(Trainer(**trainer), tmp_path)
    assert (entry.folder, entry.arguments, entry.python_path) == (folder, arguments, python_path)
    assert entry.file is None or (tmp_path / entry.file).is_file()


INCLUDED: dict[str, tuple[list[str], dict[str, Any], tuple[str, ...], tuple[str, ...], str, str | None]] = {
    "a package above the spec": (
        ["team_a/trainer/task.py", "common/__init__.py"],
        {"include": ("../common",)},
        ("team_a/trainer", "common"),
        ("-m", "trainer.task"),
        "/app/team_a",
        "/app",
    ),
    "modules above the spec": (
        ["team_a/train.py", "common/io.py"],
        {"source": "train.py", "include": ("../common",)},
        ("team_a", "common"),
        ("/app/team_a/train.py",),
        "/app/team_a",
        "/app:/app/common:/app/team_a",
    ),
    "named from the repository's root": (
        ["team_a/train.py", "libs/io.py"],
        {"source": ".", "module": "team_a.train", "include": ("../libs",)},
        ("team_a", "libs"),
        ("-m", "team_a.train"),
        "/app/team_a",
        "/app:/app/libs",
    ),
    "an installable library": (
        ["jobs/a/train.py", "libs/io/src/io_lib/__init__.py", "libs/io/pyproject.toml"],
        {"source": "train.py", "include": ("../../libs/io",)},
        ("jobs/a", "libs/io"),
        ("/app/jobs/a/train.py",),
        "/app/jobs/a",
        "/app/libs/io/src:/app/jobs/a:/app",
    ),
    "a flat project": (
        ["a/trainer/task.py", "lib/lib/__init__.py", "lib/setup.py"],
        {"include": ("../lib",)},
        ("a/trainer", "lib"),
        ("-m", "trainer.task"),
        "/app/a",
        "/app/lib:/app",
    ),
    "one file": (
        ["a/trainer/task.py", "util.py"],
        {"include": ("../util.py",)},
        ("a/trainer", "util.py"),
        ("-m", "trainer.task"),
        "/app/a",
        "/app",
    ),
    "beside the source": (
        ["a/trainer/task.py", "a/common/__init__.py"],
        {"include": ("common", "trainer/data")},
        ("trainer", "common"),
        ("-m", "trainer.task"),
        "/app",
        None,
    ),
    "the whole repository": (
        ["a/trainer/task.py", "b/x.py"],
        {"include": ("..", "../b")},
        (".",),
        ("-m", "trainer.task"),
        "/app/a",
        "/app:/app/b",
    ),
    "the source above the spec": (
        ["deploy/gpu/image.yaml", "src/pkg/train.py"],
        {"source": "../../src", "module": "pkg.train"},
        ("src",),
        ("-m", "pkg.train"),
        "/app",
        "/app/src",
    ),
}


@pytest.mark.parametrize("name", INCLUDED)
def test_shared_code(name: str, tmp_path: Path) -> None:
    files, trainer, paths, arguments, working, python_path = INCLUDED[name]
    for path in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(MAIN)
    spec = next(folder for folder in ("deploy/gpu", "jobs/a", "team_a", "a") if (tmp_path / folder).is_dir())
    entry = find_entry_point(Trainer(**trainer), tmp_path / spec)
    assert (entry.paths, entry.arguments, entry.working_folder) == (paths, arguments, working)
    assert entry.python_path == python_path


@pytest.mark.parametrize(
    ("files", "trainer", "message", "hint"),
    [
        (["a.py", "b.py"], {"source": "."}, "'.' has 2 programs: a.py, b.py", "trainer: a.py"),
        (["src/pkg/train.py"], {"source": "src", "module": "pkg.trian"}, "there is no pkg/trian.py", "pkg.train?"),
    ],
)
def test_what_cannot_start(files: list[str], trainer: dict[str, Any], message: str, hint: str, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(MAIN)
    with pytest.raises(FieldError) as caught:
        find_entry_point(Trainer(**trainer), tmp_path)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
