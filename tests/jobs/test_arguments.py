"""Random argument lists through every target: the service receives what the spec says, or imgtool refuses by name."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.specs import cpu, images, spec
from training_imgtool.jobs import Format, JobFile, JobOptions, job_data
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.jobs.tf_config import parse_hosts
from training_imgtool.spec.load import load
from training_imgtool.spec.model import ImageSpec, Role, RoleSpec, Target

M, W = Role.MASTER, Role.WORKER
WORDS = [
    "--rate", "--rate=0.1", "1e-3", "y", "on", "null", "", " ", "a b", "$(HOME)", "$HOME", "${X}", "$$", "$", "`id`",
    "'", '"',
    "\\", "#x", "a: b", "- a", "{}", "[1]", "*", "~", "!", "&a", "|", ">", "%", "@", "é", "🚀", "0755", "2.10",
    "12:30", "^:^x",
    ",", "a,b;c:d", "--", "-", "\n", "x\ny", "\t", "--job-dir=x", "--job-directory", "<<", "---", "1_000", ".5", "0o17",
]  # fmt: skip
LISTS = [[*random.Random(seed).choices(WORDS, k=1 + seed % 7)] for seed in range(200)]


def expanded(text: str) -> str:
    """What Kubernetes and Compose make of a text in which only `$$` is special."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


def received(of: ImageSpec, target: Target) -> list[str]:
    """The arguments that the trainer gets from the job file."""
    job = job_data(of, images(of), target, JobOptions(hosts=parse_hosts("master=vm-1")))
    if target in {Target.TF_CONFIG, Target.SKYPILOT, Target.SLURM}:
        return _from_command_line(job)
    return arguments_in(target, dump(job))


def arguments_in(target: Target, text: str) -> list[str]:
    """The arguments that the service starts the trainer with, from the text of a YAML file."""
    data: Any = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    if target is Target.AI_PLATFORM:
        return list(data[0]["trainingInput"].get("args", []))
    if target is Target.VERTEX:
        return list(data[0]["workerPoolSpecs"][0]["containerSpec"].get("args", []))
    if target is Target.COMPOSE:
        return [expanded(arg) for arg in data[0]["services"]["master"].get("command", [])]
    return [expanded(arg) for arg in _container(data[-1]).get("args", [])]


def _container(manifest: Any) -> Any:
    """The container of a manifest with one Pod."""
    spec_of = manifest["spec"]
    if manifest["kind"] == "TFJob":
        ((replica),) = spec_of["tfReplicaSpecs"].values()
        spec_of = replica["template"]["spec"]
    elif manifest["kind"] == "JobSet":
        spec_of = spec_of["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec_of["containers"][0]


def _from_command_line(job: JobFile) -> list[str]:
    if job.target is Target.TF_CONFIG:
        words = shlex.split(dump(job, Format.DOCKER_RUN).partition("\n")[2])
        return words[next(index for index, word in enumerate(words) if "@sha256:" in word) + 1 :]
    document = job.documents[0]
    words = shlex.split(document["run"] if job.target is Target.SKYPILOT else document["steps"][0]["command"])
    return words[words.index("trainer.task") + 1 :]


@pytest.mark.parametrize("target", Target)
def test_the_file_carries_every_argument(target: Target) -> None:
    for args in LISTS:
        machine = None if target in {Target.ECI, Target.SKYPILOT} else "n1-standard-8"
        of = spec({M: RoleSpec(machine=machine)}, args=tuple(args))
        assert received(of, target) == args


@pytest.mark.parametrize("target", Target)
def test_the_command_line_names_the_file_and_no_argument(target: Target) -> None:
    of = spec({M: RoleSpec(machine=None if target is Target.ECI else "n1-standard-8")}, args=("$(reboot)", "a b"))
    job = job_data(of, images(of), target, JobOptions(file="my job.yaml", hosts=parse_hosts("master=vm-1")))
    words = shlex.split(command_line(job.command).replace(" \\\n", " "))
    assert words == list(job.command)
    assert "my job.yaml" in words or target is Target.TF_CONFIG
    assert "$(reboot)" not in words


def test_the_json_form_says_the_same() -> None:
    for args in LISTS[:20]:
        of = spec({M: cpu()}, args=tuple(args))
        data = json.loads(dump(job_data(of, images(of), Target.AI_PLATFORM), Format.JSON))
        assert data["trainingInput"].get("args", []) == args


def test_arguments_of_several_lines_are_read_from_a_spec(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    (tmp_path / "image.yaml").write_text(
        "name: x\ntensorflow: 2.15.1\nroles:\n  master:\n    command: [bash, -lc]\n    args:\n    - |\n"
        "      echo one\n      \techo two\n"
    )
    of = load(tmp_path / "image.yaml").spec
    assert of.roles[M].args == ("echo one\n\techo two\n",)
    assert received(of, Target.COMPOSE) == ["echo one\n\techo two\n"]
