"""An AI Platform Job as its Vertex equivalent."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.jobs import schemas
from tests.jobs.specs import CASES, Case, text_of
from training_imgtool.core.errors import FieldListError, InputError, UsageError
from training_imgtool.jobs import Format, JobOptions
from training_imgtool.jobs.conversion.job import read_job
from training_imgtool.jobs.conversion.vertex import convert, tags_in
from training_imgtool.jobs.text import dump
from training_imgtool.spec.targets import Target

IMAGE = "us-central1-docker.pkg.dev/p/r/x@sha256:" + "a" * 64
JOB = f"""\
jobId: my_job
etag: abc
labels: {{team: vision}}
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig: {{imageUri: {IMAGE}, diskConfig: {{bootDiskType: pd-ssd, bootDiskSizeGb: 200}}}}
  parameterServerType: n1-highmem-8
  parameterServerCount: '2'
  parameterServerConfig: {{containerCommand: [run], containerArgs: [ps]}}
  evaluatorType: n1-standard-8
  evaluatorCount: 1
  region: us-central1
  jobDir: gs://my-bucket/mnist
  useChiefInTfConfig: true
  serviceAccount: trainer@my-project.iam.gserviceaccount.com
  encryptionConfig: {{kmsKeyName: projects/p/locations/us-central1/keyRings/r/cryptoKeys/k}}
  scheduling: {{maxWaitTime: 3600s, maxRunningTime: 7200s, priority: 7}}
"""


def test_every_field_goes_where_the_mapping_says() -> None:
    job = convert(read_job(JOB, "config.yaml"))
    chief, workers, servers, evaluators = job.documents[0]["workerPoolSpecs"]
    assert chief == {
        "machineSpec": {"machineType": "n1-standard-8"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": IMAGE, "args": ["--job-dir=gs://my-bucket/mnist"]},
        "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 200},
    }
    assert workers["replicaCount"] == 0  # a gap: gcloud takes no empty pool in a file
    assert servers["replicaCount"] == 2
    assert servers["containerSpec"] == {  # nothing is inherited from pool 0 on Vertex AI, so the image is written out
        "imageUri": IMAGE,
        "command": ["run"],
        "args": ["ps", "--job-dir=gs://my-bucket/mnist"],
    }
    assert evaluators["containerSpec"]["imageUri"] == IMAGE
    assert job.documents[0]["scheduling"] == {"timeout": "7200s", "maxWaitDuration": "3600s"}
    assert job.documents[0]["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/mnist"}
    assert job.documents[0]["serviceAccount"] == "trainer@my-project.iam.gserviceaccount.com"


def test_name_labels_and_key_are_flags_and_part_of_the_api_body() -> None:
    job = convert(read_job(JOB, "config.yaml"), JobOptions(file="vertex.yaml"))
    assert job.command == (
        "gcloud", "ai", "custom-jobs", "create", "--region", "us-central1", "--display-name", "my_job",
        "--config", "vertex.yaml", "--labels", "team=vision",
        "--kms-key", "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    )  # fmt: skip
    assert job.api is not None
    assert job.api["labels"] == {"team": "vision"}
    assert job.api["jobSpec"]["workerPoolSpecs"][1] == {}  # the API takes an empty pool


def test_a_line_for_each_field_without_counterpart() -> None:
    lost = [note for note in convert(read_job(JOB, "config.yaml")).notes if note.startswith("no counterpart: ")]
    assert [re.split(": ", line)[1] for line in lost] == [
        "etag",
        "trainingInput.scaleTier",
        "trainingInput.scheduling.priority",
        "trainingInput.useChiefInTfConfig",
    ]


def test_both_forms_pass_the_strict_schemas() -> None:
    schemas.need()
    job = convert(read_job(JOB, "config.yaml"))
    assert schemas.complaints("vertex", job.documents[0]) == []
    assert schemas.complaints("vertex-api", job.api) == []
    assert dump(job).startswith(
        "# Written by imgtool 0 for vertex, from an AI Platform Job.\n# Submit with:\n#   gcloud ai"
    )


def _flat() -> str:
    """A Job all of which gcloud has flags for."""
    return f"""\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig: {{imageUri: {IMAGE}}}
  region: us-central1
"""


AI_CASES = [pytest.param(case, id=case.name) for case in CASES if Target.AI_PLATFORM in case.targets]
REFUSED = {
    "tpu-worker": "exactly one pool of one replica",
    "tpu-worker-default": "exactly one pool of one replica",
    "hyperparameters": "cannot continue the trials of another job",
    "tpu-version": "exactly one pool of one replica",
    "basic-tpu": "exactly one pool of one replica",
    "runtime": "pool 0 needs an image",
    "runtime-custom": "pool 0 needs an image",
}


@pytest.mark.parametrize("case", AI_CASES)
def test_what_imgtool_writes_for_ai_platform(case: Case) -> None:
    text = text_of(f"{case.name}.ai-platform")
    if case.name in REFUSED:
        with pytest.raises(FieldListError, match=REFUSED[case.name]):
            convert(read_job(text, "f"))
        return
    schemas.need()
    job = convert(read_job(text, "f"))
    tuning = "studySpec" in job.documents[0]
    assert schemas.complaints("vertex-tuning" if tuning else "vertex", job.documents[0]) == []
    assert schemas.complaints("vertex-tuning" if tuning else "vertex-api", job.api) == []
    if Target.VERTEX in case.targets:  # what imgtool makes for Vertex AI from the same spec, but for names
        assert job.documents[0] == yaml.safe_load(text_of(f"{case.name}.vertex"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n", "config.yaml: not an AI Platform Job"),
        ("workerPoolSpecs: []\n", "not an AI Platform Job"),
        ("trainingInput: {}\n---\ntrainingInput: {}\n", "expected one document"),
        ("trainingInput: {region: us-central1}\n", "pool 0 needs an image"),
        (_flat().replace("us-central1\n", "mars\n"), "'mars' is not a region"),
        (_flat().replace("  region: us-central1\n", ""), "a job runs in a region"),
        (_flat().replace("@sha256:" + "a" * 64, ":v1"), "is a tag: the registry named no digest for it"),
        (_flat().replace("n1-standard-8", "x1-standard-8"), "is not a machine type of Vertex AI"),
        ("trainingInput: [", "not YAML"),
        (_flat().replace("masterType", "master_type"), "'master_type' is not a key here"),
        (_flat().replace("scaleTier: CUSTOM", "masterConfigs: []"), "did you mean masterConfig"),
        (_flat().replace(f"{{imageUri: {IMAGE}}}", "[]"), "trainingInput.masterConfig: a list: expected a mapping"),
    ],
)
def test_what_cannot_be_converted(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(read_job(text, "config.yaml"))


def test_tags_are_pinned_by_whoever_can_ask_the_registry() -> None:
    text = _flat().replace("@sha256:" + "a" * 64, ":v1")
    (tag,) = tags_in(read_job(text, "c"))
    assert str(tag) == "us-central1-docker.pkg.dev/p/r/x:v1"
    digest = tag.repository.digest("sha256:" + "b" * 64)
    job = convert(read_job(text, "c"), digests={tag: digest})
    assert job.documents[0]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] == str(digest)
    assert tags_in(read_job(JOB, "c")) == ()


def test_flags_of_a_converted_job() -> None:
    job = convert(read_job(_flat(), "config.yaml"))
    assert dump(job, Format.GCLOUD) == (
        "gcloud ai custom-jobs create \\\n    --region us-central1 \\\n    --display-name converted \\\n"
        f"    --worker-pool-spec=replica-count=1,machine-type=n1-standard-8,container-image-uri={IMAGE}\n"
    )


def test_flags_lie_over_the_file_as_gcloud_lays_them() -> None:
    part = f"trainingInput: {{scaleTier: CUSTOM, masterType: n1-standard-4, masterConfig: {{imageUri: {IMAGE}}}}}\n"
    flags = (
        "gcloud ai-platform jobs submit training my_job --config config.yaml --region=us-central1 --stream-logs "
        "--worker-machine-type n1-standard-8 --worker-count 2 --master-accelerator count=1,type=nvidia-tesla-v100 "
        "--job-dir gs://my-bucket/x --labels team=vision --use-chief-in-tf-config true -- --epochs=3 'a b'"
    )
    job = read_job(part, "config.yaml", flags=flags)
    assert (job["jobId"], job["labels"]) == ("my_job", {"team": "vision"})
    chief, workers = convert(job).documents[0]["workerPoolSpecs"]
    assert chief["machineSpec"] == {
        "machineType": "n1-standard-4", "acceleratorType": "NVIDIA_TESLA_V100", "acceleratorCount": 1,
    }  # fmt: skip
    assert chief["containerSpec"]["args"] == ["--epochs=3", "a b", "--job-dir=gs://my-bucket/x"]
    assert (workers["replicaCount"], workers["machineSpec"]) == (2, {"machineType": "n1-standard-8"})


@pytest.mark.parametrize(
    ("flags", "message"),
    [("--nonsense x", "--nonsense is not a flag of gcloud"), ("--region", "--region has no value")],
)
def test_flags_that_gcloud_does_not_have(flags: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_job(_flat(), "c", flags=flags)


def test_the_output_of_jobs_describe() -> None:
    described = _flat() + (
        "createTime: '2024-03-01T10:00:00Z'\njobId: old\nstate: SUCCEEDED\njobPosition: '0'\n"
        "trainingOutput: {consumedMLUnits: 0.1}\netag: abc\nendTime: x\nstartTime: y\n"
    )
    job = convert(read_job(described, "described.yaml"))
    assert job.documents == convert(read_job(_flat(), "c")).documents
    assert "no counterpart: etag: belongs to a patch of an existing job" in job.notes


@pytest.mark.parametrize(
    ("change", "machine", "note"),
    [
        (("CUSTOM", "BASIC"), {"machineType": "n1-standard-4"}, "BASIC becomes 1 master on n1-standard-4"),
        (
            ("CUSTOM", "BASIC_GPU"),
            {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
            "BASIC_GPU becomes 1 master on n1-standard-8",
        ),
        (
            ("n1-standard-8", "complex_model_m"),
            {"machineType": "n1-highcpu-16"},
            "complex_model_m becomes n1-highcpu-16",
        ),
        (
            ("n1-standard-8", "standard_gpu"),
            {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
            "Vertex AI has no K80",
        ),
        (
            ("n1-standard-8", "complex_model_m_v100"),
            {"machineType": "n1-standard-16", "acceleratorType": "NVIDIA_TESLA_V100", "acceleratorCount": 4},
            "complex_model_m_v100 becomes n1-standard-16",
        ),
    ],
)
def test_tiers_and_legacy_types_become_machines(change: tuple[str, str], machine: object, note: str) -> None:
    job = convert(read_job(_flat().replace(*change), "c"))
    assert job.documents[0]["workerPoolSpecs"][0]["machineSpec"] == machine
    assert any(note in line for line in job.notes), job.notes


def test_a_tuning_job_stays_one() -> None:
    text = _flat() + (
        "  hyperparameters: {goal: MAXIMIZE, maxTrials: 40, maxParallelTrials: 4, params: "
        "[{parameterName: lr, type: DOUBLE, minValue: 0.001, maxValue: 0.1, scaleType: UNIT_LOG_SCALE}]}\n"
    )
    job = convert(read_job(text, "c"))
    assert job.documents[0]["maxTrialCount"] == 40
    (parameter,) = job.documents[0]["studySpec"]["parameters"]
    assert parameter["doubleValueSpec"] == {"minValue": 0.001, "maxValue": 0.1}
    assert job.command[:3] == ("gcloud", "ai", "hp-tuning-jobs")


@pytest.mark.parametrize("words", ["gcloud ai-platform jobs submit training a", "gcloud", ""])
def test_flags_behind_a_command(words: str) -> None:
    job = read_job(_flat(), "c", flags=f"{words} --region=europe-west1")
    assert job["trainingInput"]["region"] == "europe-west1"


def test_another_option_that_begins_like_job_dir() -> None:
    text = _flat() + "  jobDir: gs://my-bucket/x\n  args: [--job-directory=x]\n"
    args = convert(read_job(text, "c")).documents[0]["workerPoolSpecs"][0]["containerSpec"]["args"]
    assert args == ["--job-directory=x", "--job-dir=gs://my-bucket/x"]
