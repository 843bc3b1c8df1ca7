"""What imgtool prints, run by bash: stand-ins for the services' programs receive what the spec says.

`make long` runs 200 lists per target, the normal suite a sample. The services' own programs read the same in
tests/integration: test_gcloud_arguments.py, test_kubernetes_arguments.py, test_compose_program.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.jobs.random_arguments import Asked, M, asked, received
from tests.jobs.shell import Shell
from tests.jobs.specs import images
from training_imgtool.jobs import Format, JobFile, job_data, launcher
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.model.spec import INIT, Role
from training_imgtool.model.targets import Target

SAMPLES = [(15, 10), pytest.param(16, 200, marks=pytest.mark.long)]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def job_of(wanted: Asked, target: Target, file: str = "config.yaml") -> JobFile:
    return job_data(wanted.spec, images(wanted.spec), target, wanted.options(file))


@pytest.mark.parametrize(("seed", "count"), SAMPLES)
@pytest.mark.parametrize("target", [target for target in Target if target is not Target.TF_CONFIG])
def test_the_command_submits_the_file_with_every_argument(target: Target, seed: int, count: int, shell: Shell) -> None:
    lists = list(asked(seed, count, target))
    lines = []
    for number, wanted in enumerate(lists):
        name = f"it's job {number} $(x).yaml"
        job = job_of(wanted, target, name)
        (shell.folder / name).write_text(dump(job))
        lines.append(command_line(job.command))
    calls = shell.run("\n".join(lines) + "\n")
    assert len(calls) == count
    for call, wanted in zip(calls, lists, strict=True):
        (file,) = [word for word in call if word.endswith(".yaml")]
        text = (shell.folder / file).read_text()
        assert (started(text, target, shell, wanted) or received(target, text)) == wanted.arguments


def started(text: str, target: Target, shell: Shell, wanted: Asked) -> dict[Role, list[str]]:
    """The arguments of the trainers that the file's own script starts; nothing for a target without one."""
    if target not in {Target.SKYPILOT, Target.SLURM}:
        return {}
    if target is Target.SKYPILOT:
        text = str(yaml.safe_load(text)["run"])
    calls = shell.run(text.replace(f"{' '.join(INIT)} ", "").replace(launcher.PYTHON, "python"))
    programs = [call[call.index("trainer.task") + 1 :] for call in calls if "trainer.task" in call]
    of_image = {call_image(call): program for call, program in zip(calls, programs, strict=True)}
    if target is Target.SKYPILOT:
        return dict(zip(wanted.arguments, programs, strict=True))
    digests = {str(image).rpartition("@")[2]: role for role, image in images(wanted.spec).items()}
    return {digests[digest]: program for digest, program in of_image.items()}


def call_image(call: list[str]) -> str:
    """The digest in a call's options, since the steps of a script start in any order."""
    return next((word.rpartition("@")[2] for word in call if "@sha256:" in word), "")


@pytest.mark.parametrize(("seed", "count"), SAMPLES)
def test_the_lines_for_own_machines_start_the_trainer_with_every_argument(seed: int, count: int, shell: Shell) -> None:
    lists = list(asked(seed, count, Target.TF_CONFIG))
    calls = shell.run("".join(dump(job_of(wanted, Target.TF_CONFIG), Format.DOCKER_RUN) for wanted in lists))
    expected = [(role, args) for wanted in lists for role, args in _by_machine(wanted)]
    assert len(calls) == len(expected)
    for call, (role, args) in zip(calls, expected, strict=True):
        image = next(index for index, word in enumerate(call) if "@sha256:" in word)
        assert f"-{role}-" in call[call.index("--name") + 1]
        assert call[image + 1 :] == args


def _by_machine(wanted: Asked) -> list[tuple[Role, list[str]]]:
    counts = {role: 1 if role is M else wanted.spec.roles[role].count for role in wanted.arguments}
    return [(role, wanted.arguments[role]) for role, count in counts.items() for _ in range(count)]
