"""A packaged AI Platform Job as an `image.yaml`: images with the same TensorFlow, for Vertex AI."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.jobs.conversion.imported import read_training
from training_imgtool.jobs.conversion.machines import expand_machines
from training_imgtool.jobs.conversion.source import Source
from training_imgtool.jobs.model import get, without_none
from training_imgtool.jobs.rules.ai_platform import PREFIXES
from training_imgtool.jobs.yamlio import to_yaml

_LOST = {
    "etag": "it belongs to a patch of an existing job",
    "trainingInput.pythonVersion": "imgtool chooses the Python that fits TensorFlow",
    "trainingInput.packageUris": "the images have the code of the trainer's folder instead",
    "trainingInput.scheduling.maxWaitTime": "on Vertex AI it counts with FLEX_START alone",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always says chief on Vertex AI",
}
_OF_RUNTIMES = {"chief_in_tf_config", "runtime_version", "python_version", "package_uris"}


def spec_text(
    job: Mapping[str, Any],
    name: str,
    releases: Mapping[str, str],
    *,
    source: str | None = None,
    requirements: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Writes the text of an image.yaml, and notes.

    Args:
        job: the Job, as `read_job` returns it.
        name: the images' name.
        releases: the newest TensorFlow release of each minor that imgtool builds.
        source: the folder with the code, relative to the image.yaml; by default the module's first name.
        requirements: the requirements file beside the image.yaml, if there is one.

    Raises:
        FieldListError: what images cannot take over; every reason at once.
    """
    training: Mapping[str, Any] = job["trainingInput"]
    errors = tuple(_refusals(training, releases))
    if errors:
        raise FieldListError(errors)
    expanded, notes = expand_machines(training)
    of = read_training(Source(copy.deepcopy({**job, "trainingInput": expanded})), None).document
    kept = {key: value for key, value in of["job"].items() if key not in _OF_RUNTIMES}
    times = without_none({"max_running": get(kept, "scheduling", "max_running")})
    passed = True if training.get("jobDir") else None
    of["job"] = without_none({**kept, "target": "vertex", "pass_job_dir": passed, "scheduling": times})
    version = str(training["runtimeVersion"])
    module = str(training.get("pythonModule") or "trainer.task")
    trainer = {"source": source or module.partition(".")[0], "module": module}
    first = {"name": name, "tensorflow": releases[_minor(version)], "requirements": requirements, "trainer": trainer}
    spec = without_none({**of, **first})
    notes.append(f"note: the runtime {version} becomes images with TensorFlow {spec['tensorflow']}")
    notes += [f"note: {field}: {why}" for field, why in _LOST.items() if get(job, *field.split(".")) not in (None, [])]
    if requirements is None:
        notes.append("note: list what setup.py installs (install_requires) in a requirements file")
    return to_yaml(spec), tuple(notes)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _refusals(training: Mapping[str, Any], releases: Mapping[str, str]) -> Iterator[FieldError]:
    version = training.get("runtimeVersion")
    if version is None:
        hint = "--flags '--runtime-version 2.11' gives it"
        yield FieldError("is missing: it says which TensorFlow", field="trainingInput.runtimeVersion", hint=hint)
    elif _minor(str(version)) not in releases:
        minors = list(releases)
        message = f"imgtool builds no TensorFlow {version}: expected {minors[0]} to {minors[-1]}"
        hint = "--flags '--runtime-version 2.11' takes another"
        yield FieldError(message, field="trainingInput.runtimeVersion", hint=hint)
    if get(training, "hyperparameters", "resumePreviousJobId"):
        field = "trainingInput.hyperparameters.resumePreviousJobId"
        yield FieldError("Vertex AI cannot continue the trials of another job", field=field)
    tpus = [prefix for prefix in PREFIXES if training.get(f"{prefix}Type") == "cloud_tpu"]
    if tpus or training.get("scaleTier") == "BASIC_TPU":
        message = "a TPU beside a CPU master does not carry over: a TPU job on Vertex AI is one TPU VM"
        field = f"trainingInput.{tpus[0]}Type" if tpus else "trainingInput.scaleTier"
        yield FieldError(message, field=field, hint="docs/jobs/vertex.md, A TPU VM")
