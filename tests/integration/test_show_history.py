"""`imgtool show --history`: the images of a repository by their first push, and of which commit each is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, digests, make_base
from tests.servers.registry_process import run_registry

pytestmark = pytest.mark.registry
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")


def commit(folder: Path) -> str:
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return head.stdout.strip()


def test_the_history_has_a_row_for_each_image_with_its_first_commit(tmp_path: Path) -> None:
    with run_registry(tmp_path / "registry") as running:
        wheels, base = Wheels(tmp_path / "wheels"), make_base()
        base.put(running.host)
        machine = Machine(tmp_path / "machine", f"{running.host}/team", running.host)
        machine.give(wheels)
        project = Project(tmp_path / "project", wheels, base)
        first = commit(project.folder)
        clean = digests(machine.push(project))["master"]
        project.write("trainer/other.py", "print(1)\n")
        dirty = digests(machine.push(project, "--tag", "best"))["master"]
        commit(project.folder)
        assert digests(machine.push(project))["master"] == dirty  # the same files: no row of its own
        out, _ = machine.run("show", "--history", "--locked", "--json", cwd=project.folder)
        rows = {row["digest"]: row for row in json.loads(out)["images"]}
        assert set(rows) == {clean, dirty}
        assert (rows[clean]["commit"], rows[clean]["dirty"]) == (first, False)
        assert (rows[dirty]["commit"], rows[dirty]["dirty"]) == (first, True)
        assert "best" in rows[dirty]["tags"]
        assert rows[clean]["date"] <= rows[dirty]["date"]
        machine.run("verify", "--locked", cwd=project.folder)
