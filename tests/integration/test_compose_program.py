"""Docker Compose itself reads the files that imgtool writes, where `scripts/services up compose` has unpacked it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import CASES, images, spec
from tests.jobs.test_commands_run import argument_lists
from training_imgtool.jobs import job_data
from training_imgtool.jobs.text import dump
from training_imgtool.spec.model import Role, RoleSpec, Target

PROGRAM = Path(__file__).resolve().parents[2] / ".services/compose/root/usr/libexec/docker/cli-plugins/docker-compose"


def read(text: str, folder: Path) -> Any:
    """What Compose makes of a file, `$` written twice as in the file."""
    if not PROGRAM.exists():
        pytest.skip("no docker-compose here (scripts/services up compose)")
    (folder / "job.yaml").write_text(text)
    command = [str(PROGRAM), "--file", "job.yaml", "config", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_compose_reads_every_argument(tmp_path: Path) -> None:
    for args in argument_lists(21, 8):
        of = spec({Role.MASTER: RoleSpec()}, args=tuple(args))
        data = read(dump(job_data(of, images(of), Target.COMPOSE)), tmp_path)
        assert [arg.replace("$$", "$") for arg in data["services"]["master"]["command"]] == args


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if Target.COMPOSE in case.targets])
def test_compose_takes_the_file(case: Any, tmp_path: Path) -> None:
    job = job_data(case.spec, images(case.spec), Target.COMPOSE, case.job_options())
    assert set(read(dump(job), tmp_path)["services"]) == set(job.documents[0]["services"])
