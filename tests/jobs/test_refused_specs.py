"""Specs that a service would refuse: each names the key of the spec, what was found and what is expected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.refused_google import GOOGLE, gpu
from tests.jobs.refused_others import OTHERS
from tests.jobs.refused_vertex import VERTEX
from tests.jobs.specs import BARE, ONE, TRIO, cpu, images, spec
from training_imgtool.base.errors import FieldListError, InputError
from training_imgtool.base.reference import parse_reference
from training_imgtool.jobs import JobOptions, job_data
from training_imgtool.jobs.targets.tf_config import parse_hosts
from training_imgtool.model.job import Eci
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

M, W = Role.MASTER, Role.WORKER
AI, VX, TC = Target.AI_PLATFORM, Target.VERTEX, Target.TF_CONFIG


@pytest.mark.parametrize(
    ("target", "of", "field", "text"), [pytest.param(*case[1:], id=case[0]) for case in [*GOOGLE, *VERTEX, *OTHERS]]
)
def test_refused(target: Target, of: ImageSpec, field: str, text: str) -> None:
    with pytest.raises(FieldListError) as caught:
        job_data(of, images(of), target)
    assert [(error.field, text in error.message) for error in caught.value.errors if error.field == field] == [
        (field, True)
    ], str(caught.value)


@pytest.mark.parametrize("days", [1, 65536])
def test_eci_keeps_a_cache_from_one_day_on(days: int) -> None:
    of = spec(BARE, region=None, eci=Eci(retention_days=days))
    (cache,) = [item for item in job_data(of, images(of), Target.ECI).documents if item["kind"] == "ImageCache"]
    assert cache["spec"]["retentionDays"] == days


def test_every_violation_is_said_at_once() -> None:
    of = spec({M: cpu(1, "n1-standard-3"), W: gpu(count=3)}, region="nowhere", job_dir="x")
    with pytest.raises(FieldListError) as caught:
        job_data(of, images(of), VX)
    fields = {error.field for error in caught.value.errors}
    assert fields == {"job.region", "job.job_dir", "roles.master.machine", "roles.worker.gpus.count"}


@pytest.mark.parametrize("target", Target)
def test_an_image_that_is_missing(target: Target) -> None:
    with pytest.raises(InputError, match="there is no image for the role worker"):
        job_data(spec(TRIO), {M: images(spec(TRIO))[M]}, target)


@pytest.mark.parametrize("target", Target)
def test_a_tag_is_no_digest(target: Target) -> None:
    tags: Any = dict.fromkeys(TRIO, parse_reference("gcr.io/p/x:latest"))
    with pytest.raises(InputError, match=r"gcr.io/p/x:latest is not a digest"):
        job_data(spec(TRIO), tags, target)


@pytest.mark.parametrize(
    ("target", "of"),
    [
        (VX, spec({M: cpu(1, "x9-standard-8")})),
        (VX, spec({M: gpu("NVIDIA_Z1")})),
        (VX, spec(ONE, region="mars-north1")),
    ],
)
def test_the_tables_can_be_overruled(target: Target, of: ImageSpec) -> None:
    with pytest.raises(FieldListError):
        job_data(of, images(of), target)
    job = job_data(of, images(of), target, JobOptions(allow_unknown=True))
    assert any(note.startswith("warning: ") for note in job.notes)


def test_what_is_known_cannot_be_overruled() -> None:
    of = spec({M: gpu(count=3)})
    with pytest.raises(FieldListError, match="3 x NVIDIA_TESLA_V100"):
        job_data(of, images(of), VX, JobOptions(allow_unknown=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vm-1", "'vm-1' is not ROLE=HOST"),
        ("boss=vm-1", "'boss=vm-1' is not ROLE=HOST"),
        ("master=", "'' is not HOST"),
        ("master=vm 1", "'vm 1' is not HOST"),
        ("master=vm:99999", "'vm:99999' is not HOST"),
    ],
)
def test_hosts_are_refused(text: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("hosts", "field", "message"),
    [
        ("master=a,worker=b,ps=c", "roles.worker.count", "expected 2, but --hosts names 1"),
        ("master=a,worker=b,worker=c,ps=d,evaluator=e", "roles.evaluator.count", "expected 0, but --hosts names 1"),
        ("master=a,worker=b,worker=b,ps=d", "roles.worker", "b:2222 appears twice"),
    ],
)
def test_hosts_are_the_specs_cluster(hosts: str, field: str, message: str) -> None:
    with pytest.raises(FieldListError) as caught:
        job_data(spec(BARE), images(spec(BARE)), TC, JobOptions(hosts=parse_hosts(hosts)))
    assert caught.value.errors[0].field == field
    assert message in str(caught.value)
