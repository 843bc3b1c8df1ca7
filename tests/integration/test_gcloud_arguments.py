"""Random argument lists through the real gcloud, with the file and with flags: the service receives what the spec says.

`make long` sends 200 lists; the normal suite sends a few.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.specs import images, spec
from tests.jobs.test_commands_run import argument_lists
from tests.servers.google_jobs import gcloud_environment, serving
from training_imgtool.core.errors import FieldListError
from training_imgtool.jobs import Format, JobOptions, job_data
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.spec.model import Role, RoleSpec, Target

RUNNER = Path(__file__).resolve().parents[1] / "servers" / "gcloud_many.py"
TARGETS = (Target.AI_PLATFORM, Target.VERTEX)


def _commands(seed: int, count: int, folder: Path) -> list[tuple[list[str], Target, list[str]]]:
    """Each command as a shell would split it, its target, and the arguments that the service must receive."""
    commands = []
    for number, args in enumerate(argument_lists(seed, count)):
        of = spec({Role.MASTER: RoleSpec(machine="n1-standard-8")}, args=tuple(args))
        for target in TARGETS:
            path = folder / f"{target} {number}.yaml"
            job = job_data(of, images(of), target, JobOptions(file=str(path)))
            path.write_text(dump(job))
            texts = [command_line(job.command)]
            try:
                texts.append(dump(job, Format.GCLOUD))
            except FieldListError as refused:
                assert "args" in str(refused)  # noqa: PT017  refused by name
            commands += [(shlex.split(text.replace(" \\\n", " ")), target, args) for text in texts]
    return commands


def _run(commands: list[list[str]], env: dict[str, str], answers: Path) -> list[Any]:
    """gcloud's error for each command, or None."""
    gcloud = Path(shutil.which("gcloud") or "").resolve()
    library = next(path for path in (gcloud.parents[1] / "lib", gcloud.parents[2] / "lib") if path.is_dir())
    python = next((library.parent / "platform").glob("bundledpython*/bin/python3"), Path("python3"))
    lines = "".join(json.dumps(words[1:]) + "\n" for words in commands)
    runner = [python, RUNNER, library, answers]
    subprocess.run(runner, input=lines, env=env, capture_output=True, text=True, check=True, timeout=1800)
    return [json.loads(line) for line in answers.read_text().splitlines()]


@pytest.mark.parametrize(("seed", "count"), [(3, 4), pytest.param(4, 200, marks=pytest.mark.long)])
def test_gcloud_sends_every_argument(seed: int, count: int, tmp_path: Path) -> None:
    with serving() as server:
        env = {**os.environ, **gcloud_environment(server, tmp_path / "config")}
        commands = _commands(seed, count, tmp_path)
        errors = _run([words for words, _, _ in commands], env, tmp_path / "answers")
    assert errors == [None] * len(commands)
    assert len(server.bodies) == len(commands)
    for body, (_, target, args) in zip(server.bodies, commands, strict=True):
        if target is Target.AI_PLATFORM:
            assert body["trainingInput"].get("args", []) == args
        else:
            assert body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"].get("args", []) == args
