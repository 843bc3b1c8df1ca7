"""`scripts/wild`: projects of others as they are, every exit code, and those that cannot be had skipped by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers.git_server import commit, run_git

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/wild"


def test_a_project_is_taken_as_it_is_and_a_missing_one_is_named(tmp_path: Path) -> None:
    made = commit(tmp_path / "sources/team+code", {"sub/train.py": "", "README": "text\n"})
    for name, text in {
        "code/project.toml": f'repository = "team/code"\ncommit = "{made}"\nfolder = "sub"\n',
        "code/image.yaml": "name: m\n",
        "code/generate.py": "open('data.csv', 'w').write('1,2')\n",
        "gone/project.toml": 'repository = "../nothing"\n',
    }.items():
        path = tmp_path / "projects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    arguments = ("projects", "--sources", "sources", "--work", "work")
    command = (sys.executable, SCRIPT, *arguments)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "code/image.yaml: lock 3"
    assert done.stdout.splitlines()[1].startswith("gone: skipped: ")
    assert done.returncode == 1
    assert "missing: expected a full release" in (tmp_path / "work/code.log").read_text()
    assert run_git(tmp_path / "work/code", "diff", "HEAD") == ""
    assert (tmp_path / "work/code/sub/data.csv").read_text() == "1,2"
