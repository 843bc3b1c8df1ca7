"""Which required projects are the trainer's own, and what their files call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_imgtool.model.load import load
from training_imgtool.model.own_projects import _read_names, is_own_project
from training_imgtool.model.requirements import normalise_name
from training_imgtool.model.source_requirements import parse_source

SPEC = 'name: mnist\ntensorflow: "2.15.1"\npython: "3.11"\nroles: {master: {}}\n'


@pytest.mark.parametrize(
    ("files", "trainer", "line", "is_own"),
    [
        (("own/__init__.py", "own/task.py"), "own", ".", True),
        (("own/__init__.py", "own/task.py", "tests/__init__.py"), "{source: ., module: own.task}", ".", True),
        (("src/own/__init__.py", "src/own/task.py"), "{source: src, module: own.task}", ".", True),
        (("src/own/__init__.py", "train.py"), "train.py", ".", False),
        (("own/__init__.py", "scripts/train.py"), "scripts/train.py", ".", False),
        (("own/__init__.py", "train.py"), "train.py", ".", True),
        (("libs/own/own/__init__.py", "train.py"), "train.py", "libs/own", False),
        (("train.py",), "train.py", ".", True),
        (("lib/__init__.py", "own/task.py"), "own", ".", False),
        (
            ("own/__init__.py", "scripts/train.py"),
            "{source: ., script: scripts/train.py}\nenv: {PYTHONPATH: /app}",
            ".",
            True,
        ),
    ],
)
def test_which_project_is_the_trainers_own(
    tmp_path: Path, files: tuple[str, ...], trainer: str, line: str, *, is_own: bool
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "image.yaml").write_text(f"{SPEC}trainer: {trainer}\n")
    requirement = parse_source("requirements.txt", "requirements.txt:1", f"-e {line}")
    assert requirement is not None
    assert is_own_project(requirement, load(tmp_path / "image.yaml")) is is_own


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("pyproject.toml", '[[tool.uv.index]]\nname = "gast"\n[project]\nname = "My.Own"\n', {"my-own"}),
        ("pyproject.toml", '[tool.poetry]\nname = "own"\nversion = "1"\n', {"own"}),
        ("pyproject.toml", "[project\n", set()),
        ("setup.cfg", "[metadata]\nname = own_one\n", {"own-one"}),
        ("setup.py", "from setuptools import setup\nsetup(name='own')\n", {"own"}),
    ],
)
def test_what_a_project_calls_itself(tmp_path: Path, file: str, text: str, names: set[str]) -> None:
    (tmp_path / file).write_text(text)
    assert {normalise_name(name) for name in _read_names(tmp_path)} == names
