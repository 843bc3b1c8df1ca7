"""Slurm itself: `submit` with the real sbatch, killed at each step, and how jobs end with slurmctld and slurmd.

The cells of docs/jobs/failures.md are those of the row `slurm`. Run by `make long` where `scripts/services up slurm`
has unpacked the programs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_submit_programs import Runs
from tests.jobs.specs import images, spec
from tests.servers.slurm import ROOT, slurm
from training_imgtool.jobs import job_data
from training_imgtool.jobs.launcher import PYTHON
from training_imgtool.jobs.text import dump
from training_imgtool.model.job import Scheduling, SecretRef
from training_imgtool.model.spec import INIT, Role, RoleSpec
from training_imgtool.model.targets import Target

pytestmark = pytest.mark.long
Slurm = dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.mark.parametrize("kill", ["squeue:before", "squeue:after", "sbatch:before", "sbatch:after"])
def test_sbatch_killed_at_each_step_is_one_job(kill: str, cluster: Slurm, tmp_path: Path) -> None:
    runs = Runs(tmp_path, "sbatch", str(ROOT / "usr/bin/sbatch"))
    runs.wrap("squeue", str(ROOT / "usr/bin/squeue"))
    runs.env = {
        **cluster,
        **runs.env,
        "PATH": f"{tmp_path / 'bin'}:{cluster['PATH']}",
        "COMMAND": "import time; time.sleep(90)",
    }
    words = (f"--id={kill.replace(':', '-')}",)
    assert runs.run(Target.SLURM, *words, kill=kill)[0] == -signal.SIGKILL
    code, out, err = runs.run(Target.SLURM, *words)
    assert code == 0, err
    assert out.split()[-1] == ("before" if kill == "sbatch:after" else "now")
    assert runs.run(Target.SLURM, *words)[1].split()[-1] == "before"
    assert len(_lines(cluster, f"--name={words[0].removeprefix('--id=')}")) == 1


def _lines(cluster: Slurm, *words: str) -> list[str]:
    command = ("squeue", "--all", "--states=all", "--noheader", "--format=%A|%T", *words)
    return subprocess.run(command, env=cluster, capture_output=True, text=True, check=True).stdout.split()


def ended(
    cluster: Slurm, folder: Path, programs: dict[Role, str], *, missing: Role | None = None, **job: Any
) -> tuple[str, str]:
    """The state of a job of these roles, each with its program in Python, and its `CODE:SIGNAL`."""
    roles = {role: RoleSpec(command=("python3", "-c", text)) for role, text in programs.items()}
    of = spec(roles, region=None, id=folder.name.replace("_", "-"), **job)
    text = (
        dump(job_data(of, images(of), Target.SLURM))
        .replace(PYTHON, sys.executable)
        .replace(f"{INIT[0]} {INIT[1]} ", "")
    )
    if missing:
        text = "".join(
            line.replace("docker://", "docker://missing", 1) if f"--job-name={missing} " in line else line
            for line in text.splitlines(keepends=True)
        )
    (folder / "job.sh").write_text(text)
    submitted = subprocess.run(("sbatch", "--parsable", "job.sh"), cwd=folder, env=cluster, stdout=-1, check=True)
    number = submitted.stdout.decode().strip()
    deadline = time.monotonic() + 60
    while True:
        shown = subprocess.run(("scontrol", "show", "job", number), env=cluster, stdout=-1, check=True).stdout.decode()
        fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        if fields["JobState"] not in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}:
            return fields["JobState"], fields["ExitCode"]
        assert time.monotonic() < deadline, (fields["JobState"], (folder / f"slurm-{number}.out").read_text())
        time.sleep(0.2)


LASTS = "import time; time.sleep(300)"
QUICK = "import sys; sys.exit(%d)"


@pytest.mark.parametrize(
    ("programs", "end"),
    [
        ((QUICK % 7, LASTS, LASTS), ("FAILED", "7:0")),
        ((QUICK % 0, LASTS, LASTS), ("COMPLETED", "0:0")),
        ((LASTS, QUICK % 9, LASTS), ("FAILED", "9:0")),
        ((LASTS, LASTS, "import os; os.kill(os.getpid(), 9)"), ("FAILED", "137:0")),
        (("import time; time.sleep(3)", QUICK % 0, LASTS), ("COMPLETED", "0:0")),
    ],
    ids=["chief fails", "chief ends", "worker fails", "ps killed", "worker done early"],
)
def test_how_a_job_ends(programs: tuple[str, str, str], end: tuple[str, str], cluster: Slurm, tmp_path: Path) -> None:
    roles = (Role.MASTER, Role.WORKER, Role.PS)
    assert ended(cluster, tmp_path, dict(zip(roles, programs, strict=True))) == end


def test_a_role_that_cannot_start_ends_the_job(cluster: Slurm, tmp_path: Path) -> None:
    state, code = ended(cluster, tmp_path, {Role.MASTER: LASTS, Role.WORKER: LASTS}, missing=Role.WORKER)
    assert (state, code != "0:0") == ("FAILED", True)


def test_the_evaluator_may_finish(cluster: Slurm, tmp_path: Path) -> None:
    evaluator = f"import pathlib, time; time.sleep(4); pathlib.Path('{tmp_path}/evaluated').touch()"
    assert ended(cluster, tmp_path, {Role.MASTER: QUICK % 0, Role.EVALUATOR: evaluator}) == ("COMPLETED", "0:0")
    assert (tmp_path / "evaluated").exists()


def test_programs_get_the_time_limits_signal_and_the_secret(cluster: Slurm, tmp_path: Path) -> None:
    """Slurm looks for jobs near their end twice a minute."""
    (tmp_path / "env").write_text("TOKEN=a b\n")
    program = (
        "import os, pathlib, signal, sys, time\n"
        "def save(*_):\n"
        f" pathlib.Path('{tmp_path}', os.environ['SLURM_STEP_NODELIST']).write_text(os.environ['TOKEN'])\n"
        " sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, save)\ntime.sleep(300)"
    )
    job: dict[str, Any] = {"secrets": {"TOKEN": SecretRef()}, "secrets_file": str(tmp_path / "env"), "grace_period": 55}
    programs = dict.fromkeys((Role.MASTER, Role.WORKER, Role.PS), program)
    assert ended(cluster, tmp_path, programs, scheduling=Scheduling(max_running="60s"), **job) == ("FAILED", "3:0")
    assert [path.read_text() for path in tmp_path.glob("n[1-4]")] == ["a b"] * 3
