"""Continues a script in the checkout's .venv, which `make venv` makes, so that people can start it with any Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parent.parent / ".venv"


def enter() -> None:
    """Starts the script again with the interpreter of .venv, unless that runs it already or is not there."""
    python = VENV / "bin/python"
    if Path(sys.prefix).resolve() != VENV and python.exists():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606
