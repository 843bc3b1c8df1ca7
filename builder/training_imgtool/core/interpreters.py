"""The Python interpreters of this machine."""

from __future__ import annotations

import glob
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from training_imgtool.core.errors import NeedsEngineError

_ASK = """
import sys, importlib.util
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], importlib.util.MAGIC_NUMBER.hex(),
      sys.implementation.cache_tag, sys.version.split()[0])
"""


class NoInterpreterError(NeedsEngineError):
    """This machine has no Python of the minor version that is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython on this machine.

    Attributes:
        python: the minor version, `3.11`.
        magic: the first four bytes of its bytecode files, in hexadecimal.
        tag: the part of their names, `cpython-311`.
        version: the full version, `3.11.7`.
    """

    path: str
    python: str
    magic: str
    tag: str
    version: str

    def cached(self, path: str) -> str:
        """Returns where the bytecode of the source at `path` belongs (PEP 3147)."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/__pycache__/{name.removesuffix('.py')}.{self.tag}.pyc"


def this_platform() -> str:
    """Returns the platform of containers that this machine runs, such as `linux/amd64`."""
    machine = platform.machine().lower()
    return f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }"


def find_interpreter(python: str, environ: Mapping[str, str], release: str | None = None) -> Interpreter | None:
    """Finds a CPython of the minor version `python`: this one, one on PATH, of pyenv, or of uv; None without one.

    Args:
        python: the minor version, `3.11`.
        environ: says where to look.
        release: the full version that the image has, where known: taken when it is here, so that two machines that
            have it make the same bytes, and the same as an engine.
    """
    first = None
    tried: set[str] = set()
    for path in _candidates(python, environ, release):  # one after the other: to ask uv takes 0.1 s
        if path in tried:
            continue
        tried.add(path)
        interpreter = _ask(path, environ)
        if interpreter is None or interpreter.python != python:
            continue
        if release in {None, interpreter.version}:
            return interpreter
        first = first or interpreter
    return first


def _candidates(python: str, environ: Mapping[str, str], release: str | None) -> Iterator[str]:
    if sys.version_info[:2] == tuple(int(part) for part in python.split(".")[:2]):
        yield sys.executable
    for folder in environ.get("PATH", "").split(":"):
        if folder and (program := shutil.which(f"python{python}", path=folder)):
            yield program
    pyenv = environ.get("PYENV_ROOT") or f"{environ.get('HOME', '')}/.pyenv"  # its shims on PATH run a chosen one only
    for folder in sorted(glob.glob(f"{glob.escape(pyenv)}/versions/{python}.*/bin"), reverse=True):  # noqa: PTH207
        if program := shutil.which(f"python{python}", path=folder):
            yield program
    uv = shutil.which("uv", path=environ.get("PATH", ""))
    for version in filter(None, (release, python)) if uv else ():
        command = [str(uv), "python", "find", "--offline", "--no-python-downloads", "--no-project", "--system", version]
        try:
            done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        if done.returncode == 0 and done.stdout.strip():
            yield done.stdout.strip()


def _ask(path: str, environ: Mapping[str, str]) -> Interpreter | None:
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _ASK], env=dict(environ), capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = done.stdout.split()
    if done.returncode != 0 or len(answer) != 5 or answer[0] != "cpython":
        return None
    return Interpreter(path=path, python=answer[1], magic=answer[2], tag=answer[3], version=answer[4])
