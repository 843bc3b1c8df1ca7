"""A second release of Python 3.11 on this machine, and code that the two compile to different bytecode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OTHER = Path("/usr/bin/python3.11")

# What 3.11.2 compiles to other instructions than 3.11.7: `_, _, _ = ...` needs no swaps (found in TensorFlow itself).
DIFFERS = b"def f(a, b, c):\n    _, _, _ = a, b, c\n    return []\n"


def _compiled(program: str) -> tuple[str, bytes]:
    """A Python's release, and what it makes of DIFFERS."""
    text = "import sys, marshal; print(sys.version.split()[0], marshal.dumps(compile(sys.argv[1], 'x', 'exec')).hex())"
    try:
        asked = subprocess.run([program, "-c", text, DIFFERS.decode()], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "", b""
    release, _, code = asked.stdout.partition(" ")
    return release, bytes.fromhex(code)


HERE_RELEASE, HERE_CODE = _compiled(sys.executable)
OTHER_RELEASE, OTHER_CODE = _compiled(str(OTHER))
two_releases = pytest.mark.skipif(
    not OTHER_CODE or OTHER_CODE == HERE_CODE, reason="no second release of Python 3.11 whose bytecode differs"
)
