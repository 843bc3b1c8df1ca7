"""Continues a script in the checkout's .venv, which `make venv` makes, so that people can start it with any Python."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

VENV = Path(__file__).resolve().parent.parent / ".venv"


def enter() -> None:
    """Starts the script again with the interpreter of .venv, unless that runs it already.

    Without .venv, a Python that has imgtool continues; any other Python exits with the command that makes .venv.
    """
    python = VENV / "bin/python"
    if Path(sys.prefix).resolve() != VENV and python.exists():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606
    if find_spec("training_imgtool") is None:
        sys.exit(f"{sys.argv[0]}: this Python has no imgtool: run `make venv` in {VENV.parent}")
