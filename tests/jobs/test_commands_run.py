"""What imgtool prints, run by a shell: stand-ins for the services' programs receive what the spec says.

`tests/integration/test_gcloud_arguments.py` does the same with the real gcloud.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.jobs.specs import images, spec
from tests.jobs.test_arguments import WORDS, arguments_in
from tests.jobs.test_gcloud_flags import split
from training_imgtool.core.errors import FieldListError
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.jobs.tf_config import parse_hosts
from training_imgtool.spec.model import Role, RoleSpec, Target

PROGRAMS = ("gcloud", "kubectl", "docker", "sky", "sbatch", "srun", "python")
STAND_IN = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" "" END "" >> "$RECEIVED"
"""
COUNT = 40
SCRIPTS = {Target.SKYPILOT, Target.SLURM}
FLAGS = {Target.AI_PLATFORM, Target.VERTEX}


def argument_lists(seed: int, count: int) -> list[list[str]]:
    """Lists of words that shells, YAML and gcloud know, and of words made of their characters."""
    chance = random.Random(seed)
    made = ["".join(chance.choices("ab-=,^$'\"\\ \t\n#~{}()é🚀*!", k=chance.randint(1, 6))) for _ in range(count)]
    return [chance.choices([*WORDS, *made], k=chance.randint(1, 8)) for _ in range(count)]


class Shell:
    """A shell whose programs are stand-ins that note what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in PROGRAMS:
            (folder / "bin" / name).write_text(STAND_IN)
            (folder / "bin" / name).chmod(0o755)

    def run(self, script: str) -> list[list[str]]:
        """The calls, in order, program first."""
        log = self.folder / "received"
        log.write_bytes(b"")
        env = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "RECEIVED": str(log)}
        done = subprocess.run(
            ["bash"], input=script, env=env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [call.split("\0") for call in log.read_text().split("\0\0END\0\0")[:-1]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def job_of(args: Sequence[str], target: Target, file: str) -> JobFile:
    machine = None if target in {Target.ECI, Target.SKYPILOT} else "n1-standard-8"
    of = spec({Role.MASTER: RoleSpec(machine=machine)}, args=tuple(args))
    return job_data(of, images(of), target, JobOptions(file=file, hosts=parse_hosts("master=vm-1")))


@pytest.mark.parametrize("target", [target for target in Target if target is not Target.TF_CONFIG])
def test_the_command_submits_the_file_with_every_argument(target: Target, shell: Shell) -> None:
    lists = argument_lists(15, COUNT)
    lines = []
    for number, args in enumerate(lists):
        job = job_of(args, target, f"it's job {number} $(x).yaml")
        (shell.folder / f"it's job {number} $(x).yaml").write_text(dump(job))
        lines.append(command_line(job.command))
    calls = shell.run("\n".join(lines) + "\n")
    assert len(calls) == COUNT
    for call, args in zip(calls, lists, strict=True):
        (file,) = [word for word in call if word.endswith(".yaml")]
        text = (shell.folder / file).read_text()
        assert (started(text, target, shell) if target in SCRIPTS else arguments_in(target, text)) == args


def started(text: str, target: Target, shell: Shell) -> list[str]:
    """The arguments of the trainer that the file's own script starts."""
    if target is Target.SKYPILOT:
        import yaml

        text = str(yaml.safe_load(text)["run"]).replace("/opt/venv/bin/python", "python")
    (call,) = shell.run(text)
    return call[call.index("trainer.task") + 1 :]


def test_the_lines_for_own_machines_start_the_trainer_with_every_argument(shell: Shell) -> None:
    lists = argument_lists(16, COUNT)
    calls = shell.run("".join(dump(job_of(args, Target.TF_CONFIG, "x"), Format.DOCKER_RUN) for args in lists))
    images_at = [next(index for index, word in enumerate(call) if "@sha256:" in word) for call in calls]
    assert [call[at + 1 :] for call, at in zip(calls, images_at, strict=True)] == lists


@pytest.mark.parametrize("target", sorted(FLAGS))
def test_flags_carry_every_argument_or_are_refused_by_name(target: Target, shell: Shell) -> None:
    carried, lines = [], []
    for args in argument_lists(17, COUNT):
        try:
            lines.append(dump(job_of(args, target, "x"), Format.GCLOUD))
            carried.append(args)
        except FieldListError as refused:
            twice = len(set(args)) < len(args)
            assert (twice, "args" in str(refused)) == (True, True)  # noqa: PT017  either outcome is right
    assert len(carried) > COUNT / 3
    calls = shell.run("\n".join(lines))
    for call, args in zip(calls, carried, strict=True):
        if target is Target.AI_PLATFORM:
            assert call[call.index("--") + 1 :] == args
        else:
            (flag,) = [word for word in call if word.startswith("--args=")]
            assert split(flag.removeprefix("--args=")) == args


def test_vertex_flags_refuse_an_argument_that_is_there_twice() -> None:
    """gcloud 528: `argument --args: "64" cannot be specified multiple times`."""
    with pytest.raises(FieldListError, match=r"containerSpec\.args: gcloud refuses a flag that has '64' twice"):
        dump(job_of(["--units", "64", "--layers", "64"], Target.VERTEX, "x"), Format.GCLOUD)
    assert "64" in dump(job_of(["--units", "64", "--layers", "64"], Target.AI_PLATFORM, "x"), Format.GCLOUD)
