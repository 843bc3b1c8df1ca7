"""Python packages of services, each in a virtual environment of its own, for tests that ask them for a verdict."""

from __future__ import annotations

import subprocess
import sys

from local import machine
from local.machine import UnavailableError, say

SKYPILOT = ("skypilot", "skypilot==0.14.1")
TENSORFLOW = ("tensorflow", "tensorflow-cpu==2.15.1")


def up(package: tuple[str, str]) -> str:
    """Installs the package once; returns where. Raises UnavailableError."""
    name, requirement = package
    folder = machine.STATE / name  # tests/servers/packages.py looks there
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        say(f"installing {requirement}")
        for command in (
            (sys.executable, "-m", "venv", "--clear", folder),
            (python, "-m", "pip", "install", "-q", requirement),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no output"])[-1]
                raise UnavailableError(f"{requirement}: {last}")
        ready.touch()
    return f"{requirement} in {folder.relative_to(machine.CHECKOUT)}"
