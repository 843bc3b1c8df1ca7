"""Random argument lists through every target: the service receives what the spec says, or imgtool refuses by name."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.random_arguments import Asked, M, argument_lists, asked, expanded, received
from tests.jobs.specs import cpu, images, spec
from training_imgtool.jobs import Format, JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import command_line, dump
from training_imgtool.model.job import Volume
from training_imgtool.model.load import load
from training_imgtool.model.spec import RoleSpec
from training_imgtool.model.targets import Target

PROGRAMS = {Target.TF_CONFIG, Target.SKYPILOT, Target.SLURM}  # tests/jobs/test_commands_run.py runs these


@pytest.mark.parametrize("target", [target for target in Target if target not in PROGRAMS])
def test_the_file_carries_every_argument(target: Target) -> None:
    for wanted in asked(2, 40, target):
        job = job_data(wanted.spec, images(wanted.spec), target, wanted.options("config.yaml"))
        assert received(target, dump(job)) == wanted.arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A)", "x"), ("$(B)", "$(B)"), ("$$(A)", "$(A)"), ("$$$(A)", "$x"), ("$A", "$A"), ("a$", "a$"), ("$", "$"),
        ("$(A", "$(A"), ("$()", "$()"), ("$(A)$$", "x$"), ("$$$$", "$$"), ("$((A))", "$((A))"), ("é$(A)é", "éxé"),
    ],
)  # fmt: skip
def test_kubernetes_expands(text: str, value: str) -> None:
    """The cases of upstream's own test (expand_test.go) that differ from a plain replacement."""
    assert expanded(text, {"A": "x"}) == value


@pytest.mark.parametrize(
    ("job", "passed"),
    [
        ({"volumes": (Volume(mount="/results", claim="c"),)}, ["--job-dir=/results"]),
        ({"volumes": (Volume(mount="/results", claim="c"),), "job_dir": "gs://bkt/x"}, ["--job-dir=gs://bkt/x"]),
        ({"volumes": (Volume(mount="/results", claim="c"),), "job_dir": "out"}, ["--job-dir=/job"]),
        ({}, None),
    ],
)
def test_compose_passes_the_place_that_outlives_its_containers(job: dict[str, Any], passed: list[str] | None) -> None:
    of = spec({M: RoleSpec()}, region=None, pass_job_dir=True, **job)
    (document,) = job_data(of, images(of), Target.COMPOSE).documents
    assert document["services"]["master"].get("command") == passed


@pytest.mark.parametrize("target", Target)
def test_the_command_line_names_the_file_and_no_argument(target: Target) -> None:
    of = spec({M: RoleSpec(machine=None if target is Target.ECI else "n1-standard-8")}, args=("$(reboot)", "a b"))
    job = job_data(of, images(of), target, JobOptions(file="my job.yaml", hosts=parse_hosts("master=vm-1")))
    words = shlex.split(command_line(job.command).replace(" \\\n", " "))
    assert words == list(job.command)
    assert "my job.yaml" in words or target is Target.TF_CONFIG
    assert "$(reboot)" not in words


def test_the_json_form_says_the_same() -> None:
    for args in argument_lists(3, 20):
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
    job = job_data(of, images(of), Target.COMPOSE, Asked(of, {M: []}).options("x"))
    assert received(Target.COMPOSE, dump(job)) == {M: ["echo one\n\techo two\n"]}
