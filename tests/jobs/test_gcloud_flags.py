"""Arguments in gcloud's flags: gcloud's own splitting gives back what the spec says, or imgtool refuses by name."""

from __future__ import annotations

import random
import string

import pytest

from tests.jobs.specs import ONE, images, spec
from training_imgtool.base.errors import FieldListError
from training_imgtool.jobs import job_data
from training_imgtool.jobs.gcloud import ai_platform_service, list_value, vertex_service
from training_imgtool.jobs.service import JOB, KEY, Service
from training_imgtool.model.targets import Target

ALPHABET = [*",:;|#~@^=-+%$'\" \\\t\n", "a", "é", "~~", "@@@", "--", "^:^", "$(HOME)", ""]


def split(text: str) -> list[str]:
    """How gcloud 528.0.0 reads a list flag (calliope/arg_parsers.py: ArgList, _SplitOnDelim)."""
    delimiter = ","
    if text == "--":
        return []  # argparse removes it
    if text.startswith("^") and "^" in text[1:]:
        delimiter, text = text[1:].split("^", 1)
        assert delimiter, "gcloud refuses an empty delimiter"
    if not text:
        return []
    return (text if text.endswith(delimiter) else text + delimiter).split(delimiter)[:-1]


@pytest.mark.parametrize(
    "values",
    [
        ["a,b;c:d|e#f", "~", "x"],
        ["^:^x", "b"],
        ["^a^xab"],
        [""],
        ["a", ""],
        ["", ""],
        ["a,:;|#~~@@@"],
        ["^"],
        ["^^", ","],
        ["--a", "-b,c"],
        ["--"],
        ["--", "--"],
    ],
)
def test_gcloud_reads_the_values_that_were_written(values: list[str]) -> None:
    assert split(list_value(values)) == values


def test_random_values_come_back() -> None:
    chance = random.Random(15)
    for _ in range(500):
        values = ["".join(chance.choices(ALPHABET, k=chance.randint(0, 6))) for _ in range(chance.randint(1, 5))]
        assert split(list_value(values)) == values


def test_every_punctuation_mark_in_use_needs_two() -> None:
    values = ["".join(chr(code) for code in range(33, 127)), "x"]
    assert split(list_value(values)) == values


def test_what_no_delimiter_can_carry_is_refused() -> None:
    marks = string.punctuation
    with pytest.raises(FieldListError, match="gcloud cannot carry these arguments as a flag"):
        list_value(["".join(a + b for a in marks for b in marks)])


@pytest.mark.parametrize("target", [Target.AI_PLATFORM, Target.VERTEX])
def test_a_value_that_looks_like_a_flag_stays_a_value(target: Target) -> None:
    of = spec(ONE, display_name="-rf", service_account="-x@p.iam.gserviceaccount.com")
    job = job_data(of, images(of), target)
    assert job.flags is not None
    assert "--service-account=-x@p.iam.gserviceaccount.com" in job.flags()
    if target is Target.VERTEX:
        assert "--display-name=-rf" in job.flags()
        assert "--display-name=-rf" in job.command


def test_the_tier_is_a_flag() -> None:
    job = job_data(of := spec(ONE), images(of), Target.AI_PLATFORM)
    assert job.flags is not None
    flags = job.flags()
    assert flags[flags.index("--scale-tier") + 1] == "custom"
    assert flags[flags.index("--master-machine-type") + 1] == "n1-standard-8"


@pytest.mark.parametrize("asked", [True, False])
def test_access_is_a_flag_of_both_services(*, asked: bool) -> None:
    for target in (Target.AI_PLATFORM, Target.VERTEX):
        job = job_data(of := spec(ONE, web_access=asked or None), images(of), target)
        assert job.flags is not None
        assert ("--enable-web-access" in job.flags()) is asked


def test_a_bucket_that_gcloud_refuses_in_a_flag() -> None:
    """gcloud 528 ends with a usage error for `--job-dir gs://b/x`, and sends the same from a file."""
    job = job_data(of := spec(ONE, job_dir="gs://b/x"), images(of), Target.AI_PLATFORM)
    assert job.flags is not None
    with pytest.raises(FieldListError, match=r"trainingInput\.jobDir: gcloud refuses it in a flag: 'b' cannot be"):
        job.flags()


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
