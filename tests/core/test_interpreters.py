"""Which Python of this machine compiles bytecode."""

from __future__ import annotations

import sys
from pathlib import Path

from training_imgtool.core.interpreters import find_interpreter


def test_the_release_that_the_image_has_comes_first(tmp_path: Path) -> None:
    minor = f"3.{sys.version_info[1]}"
    program = tmp_path / f"python{minor}"
    program.write_text(f"#!/bin/sh\necho cpython {minor} a70d0d0a cpython-3 {minor}.99\n")
    program.chmod(0o755)
    environ = {"PATH": str(tmp_path)}
    exact = find_interpreter(minor, environ, f"{minor}.99")
    assert exact is not None
    assert exact.path == str(program)
    for release in (None, f"{minor}.98"):
        first = find_interpreter(minor, environ, release)
        assert first is not None
        assert first.path == sys.executable


def test_an_interpreter_that_pyenvs_shims_hide_is_taken(tmp_path: Path) -> None:
    program = tmp_path / ".pyenv/versions/3.2.9/bin/python3.2"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho cpython 3.2 6c0c0d0a cpython-32 3.2.9\n")
    program.chmod(0o755)
    for environ in ({"HOME": str(tmp_path)}, {"PYENV_ROOT": str(tmp_path / ".pyenv")}):
        hidden = find_interpreter("3.2", {"PATH": "", **environ})
        assert hidden is not None
        assert hidden.path == str(program)


def test_no_interpreter_of_that_version() -> None:
    assert find_interpreter("3.2", {"PATH": ""}) is None
