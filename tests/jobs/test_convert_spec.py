"""A packaged AI Platform Job as an image.yaml, and that as a Vertex file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.specs import images
from training_imgtool.core.errors import FieldListError
from training_imgtool.jobs import job_data
from training_imgtool.jobs.conversion.job import read_job
from training_imgtool.jobs.conversion.spec import spec_text
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.text import dump
from training_imgtool.spec.load import load
from training_imgtool.spec.model import ImageSpec, Role
from training_imgtool.spec.targets import Target

RELEASES = {"1.15": "1.15.5", "2.11": "2.11.1"}
PACKAGED = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: complex_model_m
  workerType: complex_model_m
  parameterServerType: large_model
  workerCount: 9
  parameterServerCount: 3
  runtimeVersion: '2.11'
  pythonVersion: '3.7'
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


def loaded(text: str, folder: Path) -> ImageSpec:
    (folder / "image.yaml").write_text(text)
    (folder / "trainer").mkdir()
    (folder / "trainer" / "task.py").write_text("print(1)\n")
    return load(folder / "image.yaml").spec


@pytest.mark.parametrize("text", [PACKAGED, TUNED, "trainingInput: {scaleTier: BASIC_GPU, runtimeVersion: '2.11'}\n"])
def test_the_spec_loads_and_its_vertex_file_has_no_error(text: str, tmp_path: Path) -> None:
    job = read_job(text, "config.yaml", region="us-central1", flags="--job-dir gs://my-bucket/x -- --epochs=3")
    spec = loaded(spec_text(job, "mnist", RELEASES)[0], tmp_path)
    assert (spec.tensorflow, spec.args) == (RELEASES[job["trainingInput"]["runtimeVersion"]], ("--epochs=3",))
    assert (spec.job.target, spec.job.job_dir, spec.job.pass_job_dir) == (Target.VERTEX, "gs://my-bucket/x", True)
    made = job_data(spec, images(spec), Target.VERTEX)
    assert [m for m in lint(dump(made), "f", region="us-central1") if m.severity is Severity.ERROR] == []


def test_machines_counts_and_tuning_are_carried(tmp_path: Path) -> None:
    packaged = read_job(PACKAGED, "c", region="us-central1")
    spec = loaded(spec_text(packaged, "mnist", RELEASES)[0], tmp_path)
    machines = {role: (of_role.machine, of_role.count) for role, of_role in spec.roles.items()}
    assert machines == {
        Role.MASTER: ("n1-highcpu-16", 1), Role.WORKER: ("n1-highcpu-16", 9), Role.PS: ("n1-highmem-8", 3),
    }  # fmt: skip
    again = tmp_path / "again"
    again.mkdir()
    tuned = loaded(spec_text(read_job(TUNED, "c", region="us-central1"), "mnist", RELEASES)[0], again)
    assert tuned.job.hyperparameters is not None
    assert [param.name for param in tuned.job.hyperparameters.params] == ["lr", "layers", "mode", "size"]
    assert tuned.roles[Role.WORKER].count == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainingInput: {}\n", "it says which TensorFlow"),
        ("trainingInput: {runtimeVersion: '1.4'}\n", "imgtool builds no TensorFlow 1.4: expected 1.15 to 2.11"),
        ("trainingInput: {scaleTier: BASIC_TPU, runtimeVersion: '2.11'}\n", "a TPU beside a CPU master"),
    ],
)
def test_what_images_cannot_take_over(text: str, message: str) -> None:
    with pytest.raises(FieldListError, match=message):
        spec_text(read_job(text, "c"), "mnist", RELEASES)
