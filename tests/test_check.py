"""`make test` runs every test file."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def test_every_tracked_test_file_is_collected() -> None:
    """pytest's own `norecursedirs` leaves out folders by their names, such as `build`."""
    listed = subprocess.run(["git", "ls-files", "tests"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    tracked = {
        name for name in listed.stdout.splitlines() if fnmatch(name, "*/test_*.py") and (CHECKOUT / name).exists()
    }
    assert tracked
    assert tracked == _collected(CHECKOUT)


def _collected(checkout: Path) -> set[str]:
    """Returns the test files that a plain `pytest` opens, without importing what they hold."""
    program = (
        "import pytest, sys\n"
        "class File(pytest.Module):\n"
        "    def collect(self):\n"
        "        print('collected', self.nodeid)\n"
        "        return ()\n"
        "class Plugin:\n"
        "    def pytest_pycollect_makemodule(self, module_path, parent):\n"
        "        return File.from_parent(parent, path=module_path)\n"
        "pytest.main(['-q', '--collect-only', '-s', '-p', 'no:cacheprovider'], plugins=[Plugin()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True)
    return set(re.findall(r"^collected (\S+)$", done.stdout, re.MULTILINE))
