"""Where the version matrix lies, and its version without reading it: a build with nothing to do needs no more."""

from __future__ import annotations

import re
from pathlib import Path

_VERSION_LINE = re.compile(rb'^version: "([^"\n]+)"$', re.MULTILINE)


def matrix_bytes() -> bytes:
    """The text of `data/compat.yaml`."""
    return (Path(__file__).parent / "data" / "compat.yaml").read_bytes()


def matrix_version() -> str:
    """The matrix's own version, without parsing it: a lock depends on it, and a no-op build reads no matrix."""
    match = _VERSION_LINE.search(matrix_bytes()[:4096])
    if match is None:
        raise ValueError("compat.yaml has no version")
    return match.group(1).decode()
