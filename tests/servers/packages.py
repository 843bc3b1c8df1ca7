"""The Python that has a package of a service, which `scripts/services up` installs apart from imgtool's."""

from __future__ import annotations

from pathlib import Path

import pytest

_SERVICES = Path(__file__).resolve().parents[2] / ".services"


def python_with(name: str) -> str:
    """The path of that Python; skips the test where the package is not installed."""
    if not (_SERVICES / name / "ready").exists():
        pytest.skip(f"no {name} here (scripts/services up {name})")
    return str(_SERVICES / name / "bin" / "python")
