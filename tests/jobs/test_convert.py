"""An AI Platform Job as the spec of a Vertex AI job."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.jobs.specs import CASES, Case, images, text_of
from training_imgtool.base.errors import InputError, UsageError
from training_imgtool.base.reference import Digest
from training_imgtool.jobs import job_data
from training_imgtool.jobs.conversion.job import read_job
from training_imgtool.jobs.conversion.spec import images_of, make_spec, spec_text
from training_imgtool.model.load import load
from training_imgtool.model.spec import Role
from training_imgtool.model.targets import Target

RELEASES = {"1.15": "1.15.5", "2.11": "2.11.1"}
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
PACKAGED = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m
  workerType: complex_model_m
  parameterServerType: large_model
  workerCount: 9
  parameterServerCount: 3
  runtimeVersion: '2.11'
  scheduling: {maxWaitTime: 3600s, maxRunningTime: 7200s}
"""
TUNED = """\
trainingInput:
  scaleTier: STANDARD_1
  runtimeVersion: '1.15'
  hyperparameters:
    goal: MINIMIZE
    maxTrials: 4
    maxParallelTrials: 0
    params:
    - {parameterName: lr, type: DOUBLE, minValue: 0.001, maxValue: 0.1, scaleType: UNIT_LOG_SCALE}
    - {parameterName: layers, type: INTEGER, minValue: 1, maxValue: 3}
    - {parameterName: mode, type: CATEGORICAL, categoricalValues: [a, b]}
    - {parameterName: size, type: DISCRETE, discreteValues: [16, 32]}
"""


def _flat() -> str:
    return f"""\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-8
  masterConfig: {{imageUri: {IMAGE}}}
  region: us-central1
"""


def test_every_field_has_its_place() -> None:
    job = read_job(JOB, "config.yaml")
    spec, notes = make_spec(job, "mnist", RELEASES)
    made = job_data(spec, images(spec), Target.VERTEX)
    chief, workers, servers, evaluators = made.documents[0]["workerPoolSpecs"]
    assert set(images_of(job).values()) == {images_of(job)[Role.MASTER]}  # those without an image run the master's
    assert chief["machineSpec"] == {"machineType": "n1-standard-8"}
    assert chief["diskSpec"] == {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 200}
    assert (workers["replicaCount"], servers["replicaCount"], evaluators["replicaCount"]) == (0, 2, 1)
    assert servers["containerSpec"]["command"] == ["run"]
    assert servers["containerSpec"]["args"] == ["ps", "--job-dir=gs://my-bucket/mnist"]
    assert made.documents[0]["scheduling"] == {"timeout": "7200s"}
    assert made.documents[0]["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/mnist"}
    assert made.documents[0]["serviceAccount"] == "trainer@my-project.iam.gserviceaccount.com"
    assert made.api is not None
    assert made.api["displayName"] == "my_job"
    assert made.api["labels"].items() >= {"team": "vision"}.items()
    assert made.api["encryptionSpec"]["kmsKeyName"].endswith("/k")
    assert [note.split(": ")[1] for note in notes] == [
        "etag",
        "trainingInput.scheduling.maxWaitTime",
        "trainingInput.scheduling.priority",
        "trainingInput.useChiefInTfConfig",
    ]


@pytest.mark.parametrize("text", [PACKAGED, TUNED, "trainingInput: {runtimeVersion: '2.11'}\n"])
def test_the_text_of_the_spec_says_the_same(text: str, tmp_path: Path) -> None:
    flags = "--job-dir gs://my-bucket/x --module-name code.task"
    spec, _ = make_spec(read_job(text, "c", region="us-central1", flags=flags), "mnist", RELEASES)
    (tmp_path / "image.yaml").write_text(spec_text(spec))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "task.py").write_text("print(1)\n")
    assert load(tmp_path / "image.yaml").spec == spec


def test_machines_and_counts_of_a_packaged_job() -> None:
    spec, _ = make_spec(read_job(PACKAGED, "c", region="us-central1"), "mnist", RELEASES)
    assert spec.tensorflow == "2.11.1"
    assert {role: (of_role.machine, of_role.count) for role, of_role in spec.roles.items()} == {
        Role.MASTER: ("n1-highcpu-16", 1), Role.WORKER: ("n1-highcpu-16", 9), Role.PS: ("n1-highmem-8", 3),
    }  # fmt: skip


def test_tuning_stays_tuning() -> None:
    spec, _ = make_spec(read_job(TUNED, "c", region="us-central1"), "mnist", RELEASES)
    made = job_data(spec, images(spec), Target.VERTEX)
    assert made.documents[0]["maxTrialCount"] == 4
    rate, layers, mode, size = made.documents[0]["studySpec"]["parameters"]
    assert rate["doubleValueSpec"] == {"minValue": 0.001, "maxValue": 0.1}
    assert layers["integerValueSpec"] == {"minValue": "1", "maxValue": "3"}
    assert (mode["categoricalValueSpec"], size["discreteValueSpec"]) == ({"values": ["a", "b"]}, {"values": [16, 32]})


AI_CASES = [
    pytest.param(case, id=case.name) for case in CASES if {Target.AI_PLATFORM, Target.VERTEX} <= {*case.targets}
]


@pytest.mark.parametrize("case", AI_CASES)
def test_what_imgtool_writes_for_both_services(case: Case) -> None:
    job = read_job(text_of(f"{case.name}.ai-platform"), "f")
    spec, _ = make_spec(job, "mnist", RELEASES)
    digests = {role: image for role, image in images_of(job).items() if isinstance(image, Digest)}
    made = job_data(spec, digests, Target.VERTEX).documents[0]
    wanted = yaml.safe_load(text_of(f"{case.name}.vertex"))
    wanted.get("scheduling", {}).pop("maxWaitDuration", None)
    assert made == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n", "config.yaml: not an AI Platform Job"),
        ("trainingInput: {}\n---\ntrainingInput: {}\n", "expected one document"),
        ("trainingInput: {region: us-central1}\n", "it decides TensorFlow's version"),
        ("trainingInput: {runtimeVersion: '1.4'}\n", "imgtool builds no TensorFlow 1.4: expected 1.15 to 2.11"),
        ("trainingInput: {scaleTier: BASIC_TPU, runtimeVersion: '2.11'}\n", "a TPU beside a CPU master"),
        (f"trainingInput: {{workerConfig: {{imageUri: {IMAGE}}}}}\n", "pool 0 needs an image"),
        (_flat().replace("  region: us-central1\n", ""), "a job runs in a region"),
        (TUNED.replace("maxTrials: 4", "resumePreviousJobId: a"), "cannot continue the trials of another job"),
        ("trainingInput: {runtimeVersion: '2.11', masterConfig: {containerArgs: [a]}}\n", "needs an image"),
        ("trainingInput: [", "not YAML"),
        (_flat().replace("masterType", "master_type"), "'master_type' is not a key here"),
        (_flat().replace(f"{{imageUri: {IMAGE}}}", "[]"), "trainingInput.masterConfig: a list: expected a mapping"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_spec(read_job(text, "config.yaml"), "mnist", RELEASES)


def test_flags_lie_over_the_file_as_gcloud_lays_them() -> None:
    part = f"trainingInput: {{scaleTier: CUSTOM, masterType: n1-standard-4, masterConfig: {{imageUri: {IMAGE}}}}}\n"
    flags = (
        "gcloud ai-platform jobs submit training my_job --config config.yaml --region=us-central1 --stream-logs "
        "--worker-machine-type n1-standard-8 --worker-count 2 --master-accelerator count=1,type=nvidia-tesla-v100 "
        "--job-dir gs://my-bucket/x --labels team=vision --use-chief-in-tf-config true -- --epochs=3 'a b'"
    )
    spec, _ = make_spec(read_job(part, "config.yaml", flags=flags), "mnist", RELEASES)
    assert (spec.job.id, spec.job.labels, spec.args) == ("my_job", {"team": "vision"}, ("--epochs=3", "a b"))
    master, worker = spec.roles[Role.MASTER], spec.roles[Role.WORKER]
    assert (master.machine, str(master.gpus and master.gpus.type)) == ("n1-standard-4", "NVIDIA_TESLA_V100")
    assert (worker.machine, worker.count) == ("n1-standard-8", 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [("--nonsense x", "--nonsense is not a flag of gcloud"), ("--region", "--region has no value")],
)
def test_flags_that_gcloud_does_not_have(flags: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_job(_flat(), "c", flags=flags)


def test_the_output_of_jobs_describe() -> None:
    described = _flat() + (
        "createTime: '2024-03-01T10:00:00Z'\nstate: SUCCEEDED\njobPosition: '0'\n"
        "trainingOutput: {consumedMLUnits: 0.1}\nendTime: x\nstartTime: y\n"
    )
    assert read_job(described, "described.yaml") == read_job(_flat(), "c")


@pytest.mark.parametrize(
    ("change", "machine", "gpus", "note"),
    [
        (("CUSTOM", "BASIC"), "n1-standard-4", None, "BASIC becomes 1 master on n1-standard-4"),
        (("CUSTOM", "BASIC_GPU"), "n1-standard-8", ("NVIDIA_TESLA_T4", 1), "BASIC_GPU becomes 1 master"),
        (("n1-standard-8", "complex_model_m"), "n1-highcpu-16", None, "complex_model_m becomes n1-highcpu-16"),
        (("n1-standard-8", "complex_model_m_gpu"), "n1-standard-16", ("NVIDIA_TESLA_T4", 4), "Vertex AI has no K80"),
        (("n1-standard-8", "complex_model_m_v100"), "n1-standard-16", ("NVIDIA_TESLA_V100", 4), "n1-standard-16"),
    ],
)  # fmt: skip
def test_tiers_and_legacy_types_become_machines(
    change: tuple[str, str], machine: str, gpus: tuple[str, int] | None, note: str
) -> None:
    spec, notes = make_spec(read_job(_flat().replace(*change), "c"), "mnist", RELEASES)
    master = spec.roles[Role.MASTER]
    assert master.machine == machine
    assert (master.gpus and (master.gpus.type, master.gpus.count)) == gpus
    assert any(note in line for line in notes), notes
