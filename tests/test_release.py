"""What other people's pipelines run: the workflows, the action, GitLab's component, the hooks."""

from __future__ import annotations

import os
import re
import runpy
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


def test_a_release_gives_no_job_more_than_it_needs() -> None:
    release = yaml.safe_load((CHECKOUT / ".github/workflows/release.yml").read_text())
    assert release["permissions"] == {}
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert not [step for step in release["jobs"]["publish"]["steps"] if "run" in step]
    assert release["jobs"]["build"]["permissions"] == {"contents": "read"}


@pytest.mark.long
@pytest.mark.network
def test_a_tag_becomes_what_the_workflow_uploads(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", CHECKOUT, clone], check=True)
    version = runpy.run_path(str(CHECKOUT / "builder/training_imgtool/core/version.py"))["__version__"]
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    command: list[str | Path] = [sys.executable, clone / "scripts/release", "--out", tmp_path / "out"]
    text = (clone / "CHANGELOG.md").read_text()
    refused = subprocess.run([*command, "v99"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"the tag v99 is not v{version}" in refused.stdout
    if f"## [{version}] - " not in text:
        (clone / "CHANGELOG.md").write_text(text.replace("## [Unreleased]", f"## [{version}] - 2026-01-01"))
        subprocess.run([*git, "commit", "-qam", "release"], cwd=clone, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"training_imgtool-{version}"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}-py3-none-any.whl", f"{name}.tar.gz"}
    assert "passed over: actions/upload-artifact" in done.stdout


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
