"""Compares the bytecode of layers with their sources, in an interpreter of this machine."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from types import TracebackType
from typing import Self

from training_imgtool.core.interpreters import find_interpreter
from training_imgtool.verify.facts import Bytecode, FileContent
from training_imgtool.verify.inside.bytecode import name_source
from training_imgtool.verify.inside.program import write_program
from training_imgtool.verify.inside.venv_files import VENV

_SECONDS = 600.0


@dataclass(slots=True)
class Contents:
    """The sources and the bytecode of virtual environments, each content once, in a temporary folder.

    What was compared is not compared again for the next role, here or in containers.
    """

    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="imgtool-verify-")
    )
    _compared: dict[str, Bytecode] = field(default_factory=dict)
    compared_inside: dict[str, Bytecode] = field(default_factory=dict)  # in containers, by the hash of all files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._folder.cleanup()

    def wants(self, path: str) -> bool:
        """Whether to keep the file at a path, relative to the root."""
        return path.startswith(VENV) and path.endswith((".py", ".pyc"))

    def keep(self, digest: str, data: bytes) -> None:
        """Keeps a file by its SHA-256 as RECORD spells it."""
        self._place(digest).write_bytes(data)

    def compare(self, files: Mapping[str, FileContent], python: str, environ: Mapping[str, str]) -> Bytecode:
        """Compares all bytecode of an image.

        Args:
            files: size and digest of the image's files, by path.
            python: the image's minor version of Python.
            environ: says where to look for an interpreter of that version.
        """
        pairs = []
        for path, (_, digest) in files.items():
            source = files.get(name_source(path) or "") if self.wants(path) else None
            if source is not None:
                pairs.append([path, str(self._place(source[1])), str(self._place(digest))])
        if not pairs:
            return Bytecode(count=0)
        if not all(Path(place).exists() for _, *places in pairs for place in places):
            return Bytecode(count=len(pairs), unseen="not all sources and bytecode were read")
        request = json.dumps(pairs)
        if request not in self._compared:
            self._compared[request] = _run(request, len(pairs), python, environ)
        return self._compared[request]

    def _place(self, digest: str) -> Path:
        return Path(self._folder.name, digest.replace("/", "_"))


def _run(request: str, count: int, python: str, environ: Mapping[str, str]) -> Bytecode:
    interpreter = find_interpreter(python, environ)
    if interpreter is None:
        return Bytecode(count=count, unseen=f"this machine has no Python {python} that could compile the sources")
    text = (package_files("training_imgtool.verify.inside") / "bytecode.py").read_text()
    command = [interpreter.path, "-I", "-S", "-B", "-c", write_program("compare_listed", {}, (text,))]
    try:
        done = subprocess.run(command, input=request.encode(), capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Bytecode(count=count, unseen=f"{interpreter.path}: {error}")
    if done.returncode < 0:
        return Bytecode(count=count, ended=f"Python {interpreter.version} ended by signal {-done.returncode}")
    try:
        differ = json.loads(done.stdout)
    except ValueError:
        return Bytecode(count=count, unseen=f"{interpreter.path} ended with {done.returncode}")
    return Bytecode(count=count, differ=tuple(map(str, differ)))
