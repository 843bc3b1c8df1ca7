"""A packaged AI Platform Job as an `image.yaml`: images with the same TensorFlow, for Vertex AI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.jobs.conversion.machines import expand_machines
from training_imgtool.jobs.model import Document, count_of, get, without_none
from training_imgtool.jobs.rules.ai_platform import PREFIXES
from training_imgtool.jobs.yamlio import to_yaml
from training_imgtool.spec.model import Role

_PREFIX = dict(zip(Role, PREFIXES, strict=True))
_PARAM = {
    "parameterName": "name", "type": "type", "minValue": "min", "maxValue": "max", "scaleType": "scale",
}  # fmt: skip
_TUNING = {
    "goal": "goal",
    "hyperparameterMetricTag": "metric",
    "maxTrials": "max_trials",
    "maxParallelTrials": "max_parallel_trials",
    "maxFailedTrials": "max_failed_trials",
    "algorithm": "algorithm",
    "enableTrialEarlyStopping": "early_stopping",
    "resumePreviousJobId": "resume_from",
}


_LOST = {
    "etag": "it belongs to a patch of an existing job",
    "trainingInput.pythonVersion": "imgtool chooses the Python that fits TensorFlow",
    "trainingInput.packageUris": "the images have the code of the trainer's folder instead",
    "trainingInput.scheduling.maxWaitTime": "on Vertex AI it counts with FLEX_START alone",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always says chief on Vertex AI",
}


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
    version = str(training["runtimeVersion"])
    module = str(training.get("pythonModule") or "trainer.task")
    spec = without_none(
        {
            "name": name,
            "tensorflow": releases[_minor(version)],
            "requirements": requirements,
            "trainer": {"source": source or module.partition(".")[0], "module": module},
            "args": [str(arg) for arg in training.get("args", [])],
            "roles": {
                role.value: _role(expanded, prefix) for role, prefix in _PREFIX.items() if _count(expanded, prefix)
            },
            "job": _job(job, training),
        }
    )
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


def _count(training: Mapping[str, Any], prefix: str) -> int:
    return 1 if prefix == "master" else count_of(training.get(f"{prefix}Count")) or 0


def _role(training: Mapping[str, Any], prefix: str) -> Document:
    config: Mapping[str, Any] = training.get(f"{prefix}Config") or {}
    chip, disk = config.get("acceleratorConfig"), config.get("diskConfig")
    return without_none(
        {
            "machine": training.get(f"{prefix}Type"),
            "count": None if prefix == "master" else _count(training, prefix),
            "gpus": {"type": chip["type"], "count": count_of(chip["count"])} if chip else None,
            "disk": without_none({"type": disk.get("bootDiskType"), "size_gb": disk.get("bootDiskSizeGb")})
            if disk
            else None,
        }
    )


def _job(job: Mapping[str, Any], training: Mapping[str, Any]) -> Document:
    tuning = training.get("hyperparameters")
    return without_none(
        {
            "target": "vertex",
            "id": job.get("jobId"),
            "region": training.get("region"),
            "job_dir": training.get("jobDir"),
            "pass_job_dir": True if training.get("jobDir") else None,
            "scheduling": without_none({"max_running": get(training, "scheduling", "maxRunningTime")}),
            "service_account": training.get("serviceAccount"),
            "network": training.get("network"),
            "labels": job.get("labels"),
            "encryption_key": get(training, "encryptionConfig", "kmsKeyName"),
            "web_access": training.get("enableWebAccess"),
            "hyperparameters": tuning_of(tuning) if tuning else None,
        }
    )


def tuning_of(tuning: Mapping[str, Any]) -> Document:
    """Returns AI Platform's tuning as the spec has it."""
    made = {here: tuning[there] for there, here in _TUNING.items() if tuning.get(there)}  # 0 is the API's default
    if made.get("algorithm") == "ALGORITHM_UNSPECIFIED":
        del made["algorithm"]
    return {**made, "params": [_param(param) for param in tuning["params"]]}


def _param(param: Mapping[str, Any]) -> Document:
    made = {here: str(param[there]) for there, here in _PARAM.items() if there in param}
    if made.get("scale") == "NONE":
        del made["scale"]
    values = param.get("categoricalValues") or param.get("discreteValues")
    return {**made, "values": [str(value) for value in values]} if values else made
