"""Docker Compose itself reads the files that imgtool writes, where `scripts/services up compose` has unpacked it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.random_arguments import asked, from_services
from tests.jobs.specs import CASES, images
from training_imgtool.jobs import job_data
from training_imgtool.jobs.text import dump
from training_imgtool.model.targets import Target

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


@pytest.mark.parametrize(("seed", "count"), [(21, 8), pytest.param(22, 200, marks=pytest.mark.long)])
def test_compose_reads_every_argument(seed: int, count: int, tmp_path: Path) -> None:
    for wanted in asked(seed, count, Target.COMPOSE):
        data = read(dump(job_data(wanted.spec, images(wanted.spec), Target.COMPOSE)), tmp_path)
        assert from_services(data["services"]) == wanted.arguments


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if Target.COMPOSE in case.targets])
def test_compose_takes_the_file(case: Any, tmp_path: Path) -> None:
    job = job_data(case.spec, images(case.spec), Target.COMPOSE, case.job_options())
    assert set(read(dump(job), tmp_path)["services"]) == set(job.documents[0]["services"])
