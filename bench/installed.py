"""imgtool as its users have it: a wheel of a checkout in an environment of its own, its bytecode compiled.

Its Python is the distribution's, as are the builds of the others; where that is older than 3.11, the one that runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from bench.processes import run

CHECKOUT = Path(__file__).resolve().parent.parent
_SYSTEM = "/usr/bin/python3"
_ASK = "import sys; print(sys.version.split()[0] if sys.version_info >= (3, 11) else '')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The command, the checkout that it is of, and the Python that it runs on in words."""

    command: Path
    checkout: Path
    python: str


def install(folder: Path, checkout: Path = CHECKOUT) -> Installed:
    """Makes the environment in `folder`; raises FailedError."""
    python, words = _python()
    uv = str(Path(sys.executable).parent / "uv")
    environ = {**os.environ, "VIRTUAL_ENV": str(folder)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run([uv, "venv", "--quiet", "--no-project", "--python", python, str(folder)], environ=environ, folder=CHECKOUT)
    wanted = f"training-imgtool @ {checkout.as_uri()}"
    run([uv, "pip", "install", "--quiet", "--compile-bytecode", wanted], environ=environ, folder=CHECKOUT)
    return Installed(command=folder / "bin" / "imgtool", checkout=checkout, python=words)


def install_revision(folder: Path, revision: str) -> Installed:
    """Makes the environment of an earlier revision of this repository, and its checkout beside it; raises FailedError."""
    checkout, archive = folder / "checkout", folder / "checkout.tar"
    checkout.mkdir(parents=True)
    run(["git", "archive", "-o", str(archive), revision], environ=os.environ, folder=CHECKOUT)
    with tarfile.open(archive) as files:
        files.extractall(checkout, filter="data")
    return install(folder / "environment", checkout)


def _python() -> tuple[str, str]:
    answer = subprocess.run([_SYSTEM, "-c", _ASK], capture_output=True, text=True, check=False)
    version = answer.stdout.strip()
    return (_SYSTEM, f"{version}, the distribution's") if version else (sys.executable, sys.version.split()[0])
