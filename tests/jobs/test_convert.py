"""An AI Platform Job as its Vertex equivalent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.jobs import schemas
from tests.jobs.faults import GOLDEN
from training_imgtool.core.errors import FieldListError, InputError
from training_imgtool.jobs import Format, JobOptions
from training_imgtool.jobs.convert import convert, convert_file, tags_in
from training_imgtool.jobs.text import dump
from training_imgtool.spec.model import Target

VX = Target.VERTEX
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
    job = convert(JOB, "config.yaml", VX)
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
    job = convert(JOB, "config.yaml", VX, JobOptions(file="vertex.yaml"))
    assert job.command == (
        "gcloud", "ai", "custom-jobs", "create", "--region", "us-central1", "--display-name", "my_job",
        "--config", "vertex.yaml", "--labels", "team=vision",
        "--kms-key", "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    )  # fmt: skip
    assert job.api is not None
    assert job.api["labels"] == {"team": "vision"}
    assert job.api["jobSpec"]["workerPoolSpecs"][1] == {}  # the API takes an empty pool


def test_a_line_for_each_field_without_counterpart() -> None:
    lost = [note for note in convert(JOB, "config.yaml", VX).notes if note.startswith("no counterpart: ")]
    assert [re.split(": ", line)[1] for line in lost] == [
        "etag",
        "trainingInput.scaleTier",
        "trainingInput.scheduling.priority",
        "trainingInput.useChiefInTfConfig",
    ]


def test_both_forms_pass_the_strict_schemas() -> None:
    schemas.need()
    job = convert(JOB, "config.yaml", VX)
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


AI_FILES = sorted(GOLDEN.glob("*.ai-platform.yaml"))
REFUSED = {
    "legacy": "is a legacy type of AI Platform",
    "legacy-gpu": "is a legacy type of AI Platform",
    "tpu-worker": "exactly one pool of one replica",
    "tpu-worker-default": "exactly one pool of one replica",
    "hyperparameters": "cannot continue the trials of another job",
    "tpu-version": "exactly one pool of one replica",
    "basic-tpu": "BASIC_TPU says nothing about machines",
    "premium": "PREMIUM_1 says nothing about machines",
    "basic-gpu": "BASIC_GPU says nothing about machines",
    "runtime": "runs on AI Platform's own runtime",
    "runtime-custom": "runs on AI Platform's own runtime",
}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in AI_FILES])
def test_every_golden_job(path: Path) -> None:
    name = path.name.partition(".")[0]
    if name in REFUSED:
        with pytest.raises(FieldListError, match=REFUSED[name]):
            convert_file(path)
        return
    schemas.need()
    job = convert_file(path)
    tuning = "studySpec" in job.documents[0]
    assert schemas.complaints("vertex-tuning" if tuning else "vertex", job.documents[0]) == []
    assert schemas.complaints("vertex-tuning" if tuning else "vertex-api", job.api) == []
    twin = GOLDEN / f"{name}.vertex.yaml"
    if twin.exists():  # what imgtool makes for Vertex AI from the same spec, but for names
        import yaml

        assert job.documents[0] == yaml.safe_load(twin.read_text())


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
        convert(text, "config.yaml", VX)


def test_tags_are_pinned_by_whoever_can_ask_the_registry() -> None:
    text = _flat().replace("@sha256:" + "a" * 64, ":v1")
    (tag,) = tags_in(text, "c")
    assert str(tag) == "us-central1-docker.pkg.dev/p/r/x:v1"
    digest = tag.repository.digest("sha256:" + "b" * 64)
    job = convert(text, "c", VX, digests={tag: digest})
    assert job.documents[0]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] == str(digest)
    assert tags_in(JOB, "c") == ()


def test_only_to_vertex() -> None:
    with pytest.raises(InputError, match="writes --target vertex, not tfjob"):
        convert(_flat(), "config.yaml", Target.TFJOB)


def test_flags_of_a_converted_job() -> None:
    job = convert(_flat(), "config.yaml", VX)
    assert dump(job, Format.GCLOUD) == (
        "gcloud ai custom-jobs create \\\n    --region us-central1 \\\n    --display-name converted \\\n"
        f"    --worker-pool-spec=replica-count=1,machine-type=n1-standard-8,container-image-uri={IMAGE}\n"
    )
