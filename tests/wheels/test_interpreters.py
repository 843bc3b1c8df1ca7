"""Which Python of this machine compiles bytecode."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from training_imgtool.wheels.interpreters import find_interpreter

MINOR = f"3.{sys.version_info[1]}"


def test_this_interpreter_comes_first() -> None:
    for release in (None, platform.python_version(), f"{MINOR}.99"):
        found = find_interpreter(MINOR, {"PATH": ""}, release)
        assert found is not None
        assert (found.path, found.version) == (sys.executable, platform.python_version())


def test_an_interpreter_that_pyenvs_shims_hide_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / f".pyenv/versions/{MINOR}.9/bin/python{MINOR}"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.base_prefix) / "bin" / f"python{MINOR}")
    monkeypatch.setattr(platform, "python_version", lambda: "3.0.0")
    for environ in ({"HOME": str(tmp_path)}, {"PYENV_ROOT": str(tmp_path / ".pyenv")}):
        hidden = find_interpreter(MINOR, {"PATH": "", **environ})
        assert hidden is not None
        assert hidden.path == str(program)


def test_no_interpreter_of_that_version() -> None:
    assert find_interpreter("3.2", {"PATH": ""}) is None
