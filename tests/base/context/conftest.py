"""A folder with a trainer, for the tests that scan one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "spec"
    package = root / "trainer"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_bytes(b"")
    (package / "task.py").write_bytes(b"print(1)\n")
    (package / "run.sh").write_bytes(b"#!/bin/sh\n")
    (package / "run.sh").chmod(0o700)
    (package / "data" / "a.csv").write_bytes(b"1,2\n")
    (package / "link").symlink_to("data/a.csv")
    (root / "other.txt").write_bytes(b"no")
    return root
