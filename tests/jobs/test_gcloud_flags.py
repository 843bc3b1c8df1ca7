"""AI Platform's job in gcloud's flags, and the commands about a submitted job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.specs import ONE, RUNTIME, images, spec
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import Format, job_data
from training_imgtool.jobs.service import JOB, KEY, Service
from training_imgtool.jobs.targets.google.gcloud import ai_platform_service, vertex_service
from training_imgtool.jobs.text import dump
from training_imgtool.model.targets import Target


def flags_of(**job: Any) -> tuple[str, ...]:
    made = job_data(of := spec(ONE, **job), images(of), Target.AI_PLATFORM)
    assert made.flags is not None
    return made.flags()


@pytest.mark.parametrize(
    ("uris", "flag"),
    [
        (("gs://b-1/a.tar.gz", "gs://b-1/b.tar.gz"), "gs://b-1/a.tar.gz,gs://b-1/b.tar.gz"),
        (("gs://b-1/a,;.tar.gz", "gs://b-1/b.tar.gz"), "^|^gs://b-1/a,;.tar.gz|gs://b-1/b.tar.gz"),
    ],
)
def test_packages_are_one_flag_that_gcloud_splits(uris: tuple[str, ...], flag: str) -> None:
    flags = flags_of(runtime_version="2.15", package_uris=uris)
    assert flags[flags.index("--packages") + 1] == flag


def test_packages_that_no_delimiter_can_separate_are_refused() -> None:
    with pytest.raises(FieldListError, match="the URIs contain all of gcloud"):
        flags_of(runtime_version="2.15", package_uris=("gs://b-1/,;|#~.tar.gz",))


def test_a_value_that_looks_like_a_flag_stays_a_value() -> None:
    assert "--service-account=-x@p.iam.gserviceaccount.com" in flags_of(service_account="-x@p.iam.gserviceaccount.com")
    job = job_data(of := spec(ONE, display_name="-rf"), images(of), Target.VERTEX)
    assert "--display-name=-rf" in job.command


def test_the_tier_is_a_flag() -> None:
    flags = flags_of()
    assert flags[flags.index("--scale-tier") + 1] == "custom"
    assert flags[flags.index("--master-machine-type") + 1] == "n1-standard-8"


@pytest.mark.parametrize("asked", [True, False])
def test_access_is_a_flag(*, asked: bool) -> None:
    assert ("--enable-web-access" in flags_of(web_access=asked or None)) is asked


def test_a_bucket_that_gcloud_refuses_in_a_flag() -> None:
    """gcloud 528 ends with a usage error for `--job-dir gs://b/x`, and sends the same from a file."""
    with pytest.raises(FieldListError, match=r"job\.job_dir: gcloud refuses this value in a flag: 'b' cannot be"):
        flags_of(job_dir="gs://b/x")


def test_a_package_that_gcloud_refuses_is_warned_of_with_its_key() -> None:
    of = spec(ONE, tensorflow="2.11.1", **{**RUNTIME, "package_uris": ("gs://my/p.tar.gz",)})
    job = job_data(of, {}, Target.AI_PLATFORM)
    assert any(note.startswith("warning: job.package_uris: 'my' cannot be a bucket's name") for note in job.notes)
    with pytest.raises(FieldListError, match=r"job\.package_uris: gcloud refuses this value in a flag"):
        dump(job, Format.GCLOUD)


@pytest.mark.parametrize(
    ("service", "begin", "end"),
    [
        (
            vertex_service("custom-jobs", "mnist", "here", "k", "p"),
            "gcloud ai custom-jobs",
            "--region here --project p",
        ),
        (vertex_service("hp-tuning-jobs", "mnist", "here", "k", None), "gcloud ai hp-tuning-jobs", "--region here"),
        (ai_platform_service({"jobId": "m", "labels": {KEY: "k"}}, "p"), "gcloud ai-platform jobs", "--project p"),
    ],
)
def test_the_commands_about_a_job_that_was_submitted(service: Service, begin: str, end: str) -> None:
    commands = {"describe": service.watch, "stream-logs": service.logs, "cancel": service.stop}
    assert {verb: " ".join(command) for verb, command in commands.items()} == {
        verb: f"{begin} {verb} {JOB} {end}" for verb in commands
    }
