"""`job.env`: on every target and in every format as it was given, line feeds and all, or refused or noted by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.random_arguments import expanded
from tests.jobs.shell import Shell
from tests.jobs.specs import cpu, images, spec
from training_imgtool.base.errors import FieldListError, UsageError
from training_imgtool.jobs import Format, JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.jobs.text import dump
from training_imgtool.model.load import load
from training_imgtool.model.spec import ImageSpec, Role, RoleSpec
from training_imgtool.model.targets import Target

KEY = "-----BEGIN X-----\n\tab $HOME $$ '\"\\\n-----END X-----\n"
M, W = Role.MASTER, Role.WORKER


def of(target: Target, env: dict[str, str]) -> ImageSpec:
    if target is Target.SKYPILOT:
        return spec({W: RoleSpec(count=2)}, region=None, env=env)
    google = target is Target.VERTEX
    roles = {M: cpu(), W: cpu()} if google else {M: RoleSpec(), W: RoleSpec()}
    return spec(roles, region="us-central1" if google else None, env=env)


OPTIONS = JobOptions(hosts=parse_hosts("master=a,worker=b"))


def variables(data: Any) -> list[str]:
    """Every value of CERT in a document, as its reader hands it to a program."""
    found: list[str] = []
    if isinstance(data, dict):
        if data.get("name") == "CERT":
            found.append(expanded(data["value"], {}))
        found += [value for key, value in data.items() if key == "CERT" and isinstance(value, str)]
        data = list(data.values())
    if isinstance(data, list):
        found += [value for item in data for value in variables(item)]
    return found


@pytest.mark.parametrize("target", [target for target in Target if target is not Target.AI_PLATFORM])
def test_every_target_carries_every_line(target: Target) -> None:
    job = job_data(of(target, {"CERT": KEY}), images(spec({})), target, OPTIONS)
    found = variables(list(yaml.safe_load_all(dump(job))) if job.script is None else list(job.documents))
    if target is Target.COMPOSE:
        found = [value.replace("$$", "$") for value in found]
    assert set(found) == {KEY}


def test_bash_gives_slurms_steps_every_line(tmp_path: Path) -> None:
    script = dump(job_data(of(Target.SLURM, {"CERT": KEY}), images(spec({})), Target.SLURM))
    exports = script.partition("export CLUSTER_TASKS")[0]
    (call,) = Shell(tmp_path).run(f'{exports}\npython "$CERT"\n')
    assert call[1] == KEY


def test_ai_platform_has_no_variables() -> None:
    given = replace(spec({M: cpu()}), job=replace(spec({}).job, env={"A": "1"}))
    with pytest.raises(FieldListError, match=r"job\.env: AI Platform cannot set"):
        job_data(given, images(given), Target.AI_PLATFORM)


def test_a_spec_may_have_line_feeds_in_the_jobs_variables_alone(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print(1)\n")
    text = 'name: x\ntensorflow: "2.15.1"\nroles: {master: {}}\n'
    (tmp_path / "image.yaml").write_text(text + 'job: {env: {CERT: "a\\nb\\tc"}}\n')
    assert load(tmp_path / "image.yaml").spec.job.env == {"CERT": "a\nb\tc"}
    (tmp_path / "image.yaml").write_text(text + 'env: {CERT: "a\\nb"}\n')
    with pytest.raises(FieldListError, match=r"U\+000A"):
        load(tmp_path / "image.yaml")


def test_one_machines_variables_are_an_env_file() -> None:
    job = job_data(of(Target.TF_CONFIG, {"LR": "0.1 $x"}), images(spec({})), Target.TF_CONFIG, OPTIONS)
    lines = dump(job, Format.ENV, machine="worker-0").splitlines()
    assert [line.partition("=")[0] for line in lines] == ["# worker-0 on b", "LR", "TF_CONFIG", "CLUSTER_SPEC"]
    assert '"task":{"type":"worker","index":0}' in lines[2]
    assert "--name mnist-master-0" in dump(job, Format.DOCKER_RUN, machine="master-0").splitlines()[1]
    assert dump(job, Format.ENV).count("TF_CONFIG=") == 2
    with pytest.raises(UsageError, match="--machine ps-0: expected master-0, worker-0"):
        dump(job, Format.ENV, machine="ps-0")
    with pytest.raises(UsageError, match="works only with --target tf-config"):
        dump(job, machine="worker-0")


def test_an_env_file_has_no_line_feeds() -> None:
    job = job_data(of(Target.TF_CONFIG, {"CERT": KEY}), images(spec({})), Target.TF_CONFIG, OPTIONS)
    with pytest.raises(FieldListError, match=r"job\.env\.CERT: --format env allows no line feeds"):
        dump(job, Format.ENV)
