"""The scripts of the repository start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
PROGRAMS = [path for path in sorted(SCRIPTS.iterdir()) if path.is_file() and b"python3" in path.read_bytes()[:40]]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_script_can_be_read_and_says_what_it_does(path: Path) -> None:
    text = path.read_text()
    compile(text, str(path), "exec")
    if "argparse" in text:
        done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "usage" in done.stdout
