"""What other people's pipelines run: the workflows, the action, GitLab's component, the hooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.push_world import Project, Wheels, make_base

CHECKOUT = Path(__file__).resolve().parent.parent
WORKFLOWS = [*sorted((CHECKOUT / ".github/workflows").glob("*.yml")), CHECKOUT / "action.yml"]
UV = Path(sys.executable).parent / "uv"
OUTER = {name: value for name, value in os.environ.items() if not name.startswith("IMGTOOL_")}  # indexes, certificates
BIN = f"{UV.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert not [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]


@pytest.mark.long
@pytest.mark.network
def test_the_hooks_of_pre_commit(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    subprocess.run(["git", "clone", "-q", CHECKOUT, hooks], check=True)
    user = tmp_path / "user"
    Project(user, Wheels(tmp_path / "wheels"), make_base())
    env = {**OUTER, "PATH": BIN, "HOME": str(tmp_path), "IMGTOOL_REGISTRY": "127.0.0.1:9/x"}
    (user / "config.yaml").write_text("workerPoolSpecs: []\nscheduling: {timout: 60s}\n")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=hooks, capture_output=True, text=True, check=True)
    repo = {"repo": str(hooks), "rev": head.stdout.strip(), "hooks": [{"id": "imgtool-lint"}, {"id": "imgtool-lock"}]}
    (user / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [repo]}))
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=user, check=True)
    run: list[str | Path] = [UV, "tool", "run", "pre-commit==4.3.0", "run", "--all-files"]
    bad = subprocess.run(run, cwd=user, env=env, capture_output=True, text=True, check=False)
    assert re.search(r"imgtool lint\.+Failed", bad.stdout), bad.stdout + bad.stderr
    assert re.search(r"imgtool lock --locked\.+Passed", bad.stdout), bad.stdout
    (user / "config.yaml").unlink()
    (user / "image.lock").unlink()
    subprocess.run(["git", "add", "-A"], cwd=user, check=True)
    stale = subprocess.run(run, cwd=user, env=env, capture_output=True, text=True, check=False)
    assert re.search(r"imgtool lock --locked\.+Failed", stale.stdout), stale.stdout
