"""How a Slurm job ends: bash runs the written script, and steps that last and end as each case says."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.jobs.specs import images, spec
from training_imgtool.jobs import job_data
from training_imgtool.jobs.text import dump
from training_imgtool.model.spec import Role, RoleSpec
from training_imgtool.model.targets import Target

SRUN = """\
#!/bin/bash
for word; do case $word in --job-name=*) role=${word#*=} ;; esac; done
echo "$role $SLURM_EXPORT_ENV $CLUSTER_PORT" >> "$STARTED"
case " $ENDS " in *" $role="*) ;; *) exec sleep 60 ;; esac
end=${ENDS#*"$role"=}; end=${end%% *}
sleep "${end%:*}"; exit "${end#*:}"
"""
ROLES = {Role.MASTER: RoleSpec(), Role.WORKER: RoleSpec(count=2), Role.PS: RoleSpec()}


def run(roles: dict[Role, RoleSpec], ends: str, folder: Path) -> tuple[int, float]:
    """The exit code of the job, and the seconds that it took; a role that `ends` does not name runs on."""
    tools = folder / "bin"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho node1\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    of = spec(roles, region=None)
    (folder / "job.sh").write_text(dump(job_data(of, images(of), Target.SLURM)))
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "ENDS": ends, "STARTED": str(folder / "started")}
    env |= {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_JOB_ID": "3", "SLURM_EXPORT_ENV": "NONE"}
    began = time.monotonic()
    running = subprocess.Popen(["bash", str(folder / "job.sh")], env=env, start_new_session=True)
    try:
        return running.wait(timeout=30), time.monotonic() - began
    finally:
        os.killpg(running.pid, 9) if (folder / "started").exists() else None


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("master=0.3:0", 0),  # the parameter server never ends
        ("master=0.3:2", 2),
        ("worker=0.1:9", 9),  # the chief waits for ever
        ("ps=0.1:137", 137),
        ("worker=0.1:0 master=0.5:0", 0),  # a worker may be done first
        ("worker=0.1:0 ps=0.3:1", 1),
    ],
)
def test_any_failure_ends_the_job_and_so_does_the_chief(ends: str, code: int, tmp_path: Path) -> None:
    assert run(ROLES, ends, tmp_path)[0] == code
    started = sorted((tmp_path / "started").read_text().splitlines())
    assert started == [f"{role} ALL 12003" for role in ("master", "ps", "worker")]


def test_without_a_master_the_workers_end_it(tmp_path: Path) -> None:
    roles = {Role.WORKER: RoleSpec(count=2), Role.PS: RoleSpec()}
    assert run(roles, "worker=0.2:0", tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("ends", "code", "least"),
    [
        ("master=0.1:0 evaluator=1.5:0", 0, 1.4),  # it finishes the last checkpoint
        ("evaluator=0.1:0 master=0.5:0", 0, 0.4),
        ("master=0.1:0 evaluator=0.5:4", 0, 0.4),  # the training has succeeded
        ("master=0.2:3", 3, 0),
        ("evaluator=0.1:4", 4, 0),
    ],
)
def test_the_evaluator_may_finish(ends: str, code: int, least: float, tmp_path: Path) -> None:
    ended, seconds = run({**ROLES, Role.EVALUATOR: RoleSpec()}, ends, tmp_path)
    assert (ended, seconds >= least) == (code, True)
