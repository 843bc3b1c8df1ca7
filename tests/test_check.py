"""`make test` runs every test file."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
SCRIPT: dict[str, Any] = runpy.run_path(str(CHECKOUT / "scripts/check"))


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


@pytest.mark.long
def test_each_campaign_has_a_sample_in_long() -> None:
    def functions(expression: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", expression]
        listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"^(tests/\S+::\w+)", listed, re.MULTILINE))

    campaigns = functions("campaign")
    assert campaigns
    assert campaigns <= functions(SCRIPT["LONG"])


def test_a_failing_test_in_any_folder_fails_the_run(tmp_path: Path) -> None:
    """`make test`'s own command, in a copy of the tree whose folders hold one failing test each, and nothing else."""
    folders = sorted({path.parent.relative_to(CHECKOUT) for path in (CHECKOUT / "tests").rglob("test_*.py")})
    folders += [Path("tests/build"), Path("tests/dist")]  # names that pytest itself leaves out
    for name in ("pyproject.toml", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(CHECKOUT / name, tmp_path / name)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "test_planted.py").write_text("def test_planted():\n    raise ValueError\n")
    done = subprocess.run([*SCRIPT["TESTS"], "--require="], cwd=tmp_path, capture_output=True, text=True, check=False)
    failed = re.findall(r"^FAILED (\S+)/test_planted.py::test_planted\b", done.stdout, re.MULTILINE)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert sorted(failed) == sorted(map(str, folders))
