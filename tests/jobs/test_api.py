"""`training_imgtool.job` returns the data of `config --format json`, and `check_spec` needs no images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import training_imgtool
from tests.jobs.specs import ONE, TRIO, images, spec
from training_imgtool.base.errors import FieldListError, UsageError
from training_imgtool.jobs import Format, check_spec, job_data
from training_imgtool.jobs.text import dump
from training_imgtool.model.load import load
from training_imgtool.model.spec import ImageSpec
from training_imgtool.model.targets import Target

SPEC = """\
name: mnist
tensorflow: 2.15.1
roles: {master: {machine: n1-standard-8}, worker: {machine: n1-standard-8, count: 2}}
job: {target: vertex, region: us-central1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)\n")
    (tmp_path / "image.yaml").write_text(SPEC)
    return tmp_path


@pytest.mark.parametrize("target", [None, "vertex", "jobset", "compose", "slurm"])
def test_it_is_the_json_of_config(folder: Path, target: str | None) -> None:
    of = load(folder / "image.yaml").spec
    named = {role.value: str(digest) for role, digest in images(of).items() if role in of.roles}
    data = training_imgtool.job(folder, target=target, images=named)
    digests = {role: digest for role, digest in images(of).items() if role in of.roles}
    assert data == json.loads(dump(job_data(of, digests, Target(target or "vertex")), Format.JSON))


def test_errors_have_their_place(folder: Path) -> None:
    text = SPEC.replace("us-central1", "nowhere")
    (folder / "image.yaml").write_text(text)
    image = "us-central1-docker.pkg.dev/p/r/x@sha256:" + "a" * 64
    with pytest.raises(FieldListError, match=r"image.yaml:4:\d+: job.region: 'nowhere' is not a region"):
        training_imgtool.job(folder / "image.yaml", images={"master": image, "worker": image})
    with pytest.raises(UsageError, match="expected a role and REPOSITORY@sha256:DIGEST"):
        training_imgtool.job(folder, images={"master": "x:latest"})
    with pytest.raises(UsageError, match="target 'vertx': expected ai-platform, vertex"):
        training_imgtool.job(folder, target="vertx", images={})


@pytest.mark.parametrize(
    ("of", "fields"),
    [
        (spec(TRIO, target=Target.VERTEX), set()),
        (spec(ONE, target=Target.VERTEX, region="nowhere"), {"job.region"}),
        (spec(TRIO, target=Target.JOBSET, namespace="a.b"), {"job.namespace"}),
        (spec(TRIO, target=Target.TF_CONFIG), set()),
        (ImageSpec(name="mnist", tensorflow="2.15.1", roles={}), set()),
    ],
)
def test_a_spec_is_checked_without_images(of: ImageSpec, fields: set[str]) -> None:
    assert {error.field for error in check_spec(of)} == fields


def test_the_wheel_says_that_it_is_typed() -> None:
    assert (Path(training_imgtool.__file__).parent / "py.typed").is_file()
