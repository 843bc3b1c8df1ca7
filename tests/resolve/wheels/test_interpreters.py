"""Which Python of this machine compiles bytecode."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from training_imgtool.resolve.wheels.interpreters import find_interpreter

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


def test_a_shim_stands_for_the_program_that_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shims of pyenv, asdf and mise obey the folder and variables, so the same shim is another Python later."""
    real = tmp_path / "real" / f"python{MINOR}"
    real.parent.mkdir()
    real.symlink_to(Path(sys.base_prefix) / "bin" / f"python{MINOR}")
    shim = tmp_path / f"python{MINOR}"
    shim.write_text(f'#!/bin/sh\n[ -n "$CHOSEN" ] && exec {real} "$@"\nexit 127\n')
    shim.chmod(0o755)
    monkeypatch.setattr(platform, "python_version", lambda: "3.0.0")
    found = find_interpreter(MINOR, {"PATH": f"{tmp_path}:/bin", "CHOSEN": "1"})
    assert found is not None
    assert found.path == str(real)


def test_no_interpreter_of_that_version() -> None:
    assert find_interpreter("3.2", {"PATH": ""}) is None
