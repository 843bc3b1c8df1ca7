"""Slurm itself: `submit` with the real sbatch, killed at each step, and how jobs end with slurmctld and slurmd.

The cells of docs/jobs/failures.md are those of the row `slurm`. Run by `make long` where `scripts/services up slurm`
has unpacked the programs.
"""

from __future__ import annotations

import os
import re
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
from training_imgtool.model.job import JobSpec, Scheduling, SecretRef
from training_imgtool.model.spec import INIT, ImageSpec, Role, RoleSpec, Trainer
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
    text = script(of, sys.executable)
    if missing:
        text = "".join(
            line.replace("docker://", "docker://missing", 1) if f"--job-name={missing} " in line else line
            for line in text.splitlines(keepends=True)
        )
    return end_of(cluster, folder, text)


def script(of: ImageSpec, python: str) -> str:
    """The batch script of a spec, for programs of this machine."""
    text = dump(job_data(of, images(of), Target.SLURM))
    return text.replace(PYTHON, python).replace(f"{INIT[0]} {INIT[1]} ", "")


def end_of(cluster: Slurm, folder: Path, text: str, seconds: float = 60) -> tuple[str, str]:
    """Submits a batch script; the state in which its job ends, and its `CODE:SIGNAL`."""
    (folder / "job.sh").write_text(text)
    submitted = subprocess.run(("sbatch", "--parsable", "job.sh"), cwd=folder, env=cluster, stdout=-1, check=True)
    number = submitted.stdout.decode().strip()
    deadline = time.monotonic() + seconds
    while True:
        shown = subprocess.run(("scontrol", "show", "job", number), env=cluster, stdout=-1, check=True).stdout.decode()
        fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        if fields["JobState"] not in {"PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING"}:
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


@pytest.mark.parametrize(("processes", "kills"), [(1, False), (2, False), (2, True)])
def test_pytorch_trains_on_two_nodes(*, processes: int, kills: bool, cluster: Slurm, tmp_path: Path) -> None:
    """With the example of images/torch-digits, where TORCH_PYTHON names a Python that has torch."""
    python = os.environ.get("TORCH_PYTHON")
    if python is None:
        pytest.skip("TORCH_PYTHON names no Python with torch")
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "images/torch-digits"), "OMP_NUM_THREADS": "1"}
    trainer = Trainer(module="trainer.task", function="main") if kills else Trainer(module="trainer.task")
    if kills:  # a rank's death is the job's, with the rank's exit code
        (tmp_path / "trainer").mkdir()
        (tmp_path / "trainer/task.py").write_text(
            "import os, signal, time\ndef main():\n"
            "  os.environ['RANK'] == '3' and os.kill(os.getpid(), signal.SIGKILL)\n  time.sleep(300)\n"
        )
        env["PYTHONPATH"] = str(tmp_path)
    args = () if kills else ("--epochs=2", "--images=1536", f"--job-dir={tmp_path}/out")
    roles = {
        Role.MASTER: RoleSpec(processes=processes, args=args),
        Role.WORKER: RoleSpec(processes=processes, args=args),
    }
    job = JobSpec(id=tmp_path.name.replace("_", "-"), env=env)
    of = ImageSpec(name="m", torch="2.13.0", roles=roles, cuda_from="wheels", trainer=trainer, job=job)
    text = re.sub(r'"\$\(scontrol show hostnames [^)]*\)"', '"localhost localhost"', script(of, python))
    state = end_of(cluster, tmp_path, text, 240)
    output = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert state == (("FAILED", "137:0") if kills else ("COMPLETED", "0:0")), output
    if not kills:
        losses = [float(loss) for loss in re.findall(r"loss (\S+)", output)]
        assert f"rank {2 * processes - 1} of {2 * processes} on cpu" in output
        assert losses[0] > losses[1]
        assert (tmp_path / "out/model.pt").exists()
