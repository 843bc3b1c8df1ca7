"""Describes an installed Python interpreter, which compiles bytecode for images."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from training_imgtool.base.errors import NeedsEngineError


class NoInterpreterError(NeedsEngineError):
    """This machine has no Python of the needed minor version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython interpreter on this machine.

    Attributes:
        python: the minor version, `3.11`.
        magic: the first four bytes of its bytecode files, in hexadecimal.
        tag: the tag in the names of its bytecode files, `cpython-311`.
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
    """Returns the platform of the containers that this machine can run, such as `linux/amd64`."""
    machine = platform.machine().lower()
    return f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }"
