"""Random argument lists through bash and the real gcloud, with the file and with flags: the service receives them.

`make long` sends 200 lists; the normal suite sends a few.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.random_arguments import Asked, asked, received_from
from tests.jobs.shell import Shell
from tests.jobs.test_commands_run import job_of
from tests.servers.google_jobs import gcloud_environment, gcloud_runner, serving
from training_imgtool.jobs import Format
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.model.targets import Target

TARGETS = (Target.AI_PLATFORM, Target.VERTEX)


def _lines(seed: int, count: int, folder: Path) -> list[tuple[str, Target, Asked]]:
    """Each command line as imgtool prints it, its target, and what the service must receive."""
    lines = []
    for target in TARGETS:
        for number, wanted in enumerate(asked(seed, count, target)):
            job = job_of(wanted, target, str(folder / f"{target} {number}.yaml"))
            (folder / f"{target} {number}.yaml").write_text(dump(job))
            lines.append((command_line(job.command), target, wanted))
            if job.flags and all(role.args is None for role in wanted.spec.roles.values()):
                lines.append((dump(job, Format.GCLOUD), target, wanted))
    return lines


def _run(commands: list[list[str]], env: dict[str, str], answers: Path) -> list[Any]:
    """gcloud's error for each command, or None."""
    lines = "".join(json.dumps(words[1:]) + "\n" for words in commands)
    subprocess.run(
        gcloud_runner(answers), input=lines, env=env, capture_output=True, text=True, check=True, timeout=1800
    )
    return [json.loads(line) for line in answers.read_text().splitlines()]


@pytest.mark.parametrize(("seed", "count"), [(3, 4), pytest.param(4, 200, marks=pytest.mark.long)])
def test_gcloud_sends_every_argument(seed: int, count: int, tmp_path: Path) -> None:
    with serving() as server:
        env = {**os.environ, **gcloud_environment(server, tmp_path / "config")}
        lines = _lines(seed, count, tmp_path)
        commands = Shell(tmp_path).run("\n".join(line for line, _, _ in lines) + "\n")
        errors = _run(commands, env, tmp_path / "answers")
    assert errors == [None] * len(lines)
    assert len(server.bodies) == len(lines)
    for body, (_, target, wanted) in zip(server.bodies, lines, strict=True):
        sent = body if target is Target.AI_PLATFORM else body["jobSpec"]
        assert received_from(target, [sent]) == wanted.arguments
