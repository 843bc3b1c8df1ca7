"""`doctor`: builders of buildx, as a program in PATH lists them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.make.engines.support import settings
from training_imgtool.app.doctor import Check, examine, exit_code
from training_imgtool.plan.project_files import SpecChoice

NODES = [{"Name": "team0", "Endpoint": "tcp://b:1", "Status": "running"}]
BUILDERS = [
    {"Name": "team", "Driver": "remote", "Current": True, "Nodes": NODES},
    {"Name": "dead", "Driver": "kubernetes", "Current": False, "Nodes": [{"Name": "dead0", "Status": "inactive"}]},
]


def builders(folder: Path, **environ: str) -> tuple[Check, int]:
    (folder / "image.yaml").write_text('name: x\ntensorflow: "2.15.1"\nroles: {master: {}}\ntrainer: task.py\n')
    (folder / "task.py").write_text("")
    checks = examine(
        SpecChoice(path=folder), settings(folder, **{"PATH": str(folder), "DOCKER_HOST": "unix:///nowhere", **environ})
    )
    check = next(check for check in checks if check.name == "builder")
    return check, exit_code((check,))


@pytest.fixture
def buildx(tmp_path: Path) -> Path:
    lines = "\n".join(map(json.dumps, BUILDERS))
    (tmp_path / "docker-buildx").write_text(f"#!/bin/sh\n/bin/cat <<'E'\n{lines}\nE\n")
    (tmp_path / "docker-buildx").chmod(0o755)
    return tmp_path


def test_the_builder_that_a_build_would_use(buildx: Path) -> None:
    check, code = builders(buildx)
    assert (check.ok, check.needed, code) == (True, False, 0)
    assert check.text == "team (remote, tcp://b:1) runs"


@pytest.mark.parametrize("name", ["dead", "nowhere"])
def test_a_builder_that_the_machine_names_must_run(buildx: Path, name: str) -> None:
    check, code = builders(buildx, IMGTOOL_BUILDER=name)
    assert (check.ok, check.needed, code) == (False, True, 5)
    assert check.text == f"{name} does not run"
    assert "(running: team)" in str(check.hint)


def test_a_machine_without_buildx_needs_none(tmp_path: Path) -> None:
    check, code = builders(tmp_path)
    assert (check.ok, check.needed, code) == (False, False, 0)
    assert "buildx is not installed" in check.text
