"""Finds the Python interpreters of this machine with the help of uv."""

from __future__ import annotations

import glob
import platform
import subprocess
import sys
from collections.abc import Mapping

from training_imgtool.base.interpreters import Interpreter
from training_imgtool.resolve.wheels.uv import find_program

_ASK = """
import sys, importlib.util
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], importlib.util.MAGIC_NUMBER.hex(),
      sys.implementation.cache_tag, sys.version.split()[0], sys.executable, sep="\\n")
"""


def find_interpreter(python: str, environ: Mapping[str, str], release: str | None = None) -> Interpreter | None:
    """Finds a CPython of the minor version `python`: the running one, or one that uv finds; None if there is none.

    Args:
        python: the minor version, `3.11`.
        environ: the environment, which decides where uv looks: PATH, uv's own folders, and pyenv's.
        release: the full version of the image's Python, if known. If this machine has it, it is preferred, so that all
            machines with this version, and engines, make the same bytes.
    """
    own = platform.python_version()
    for version in filter(None, (release, python)):
        path = sys.executable if f"{own}.".startswith(f"{version}.") else _ask_uv(version, environ)
        interpreter = _ask_program(path, environ) if path else None
        if interpreter and interpreter.python == python:
            return interpreter
    return None


def _ask_uv(version: str, environ: Mapping[str, str]) -> str | None:
    pyenv = environ.get("PYENV_ROOT") or f"{environ.get('HOME', '')}/.pyenv"  # its shims run only one version
    folders = sorted(glob.glob(f"{glob.escape(pyenv)}/versions/*/bin"), reverse=True)  # noqa: PTH207
    options = ("--offline", "--no-python-downloads", "--no-project", "--no-config", "--system")
    return _run(
        [find_program(), "python", "find", *options, version],
        {**environ, "PATH": ":".join([environ.get("PATH", ""), *folders])},
    )


def _ask_program(path: str, environ: Mapping[str, str]) -> Interpreter | None:
    """Runs a Python to learn its version and path, because a shim of pyenv or asdf starts a Python elsewhere."""
    answer = (_run([path, "-I", "-S", "-c", _ASK], environ) or "").splitlines()
    if len(answer) != 6 or answer[0] != "cpython":
        return None
    return Interpreter(path=answer[5], python=answer[1], magic=answer[2], tag=answer[3], version=answer[4])


def _run(command: list[str], environ: Mapping[str, str]) -> str | None:
    """Returns a program's output; None if the program fails or takes too long."""
    try:
        done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
