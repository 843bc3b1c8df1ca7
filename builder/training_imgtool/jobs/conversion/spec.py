"""A packaged AI Platform Job as an `image.yaml`: images with the same TensorFlow, for Vertex AI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.jobs.conversion.machines import expand_machines
from training_imgtool.jobs.model import KEY, Document, count_of, get, without_none
from training_imgtool.jobs.rules.ai_platform import PREFIXES
from training_imgtool.jobs.yamlio import to_yaml
from training_imgtool.spec.model import Role

_LOST = {
    "etag": "it belongs to a patch of an existing job",
    "trainingInput.pythonVersion": "imgtool chooses the Python that fits TensorFlow",
    "trainingInput.packageUris": "the images have the code of the trainer's folder instead",
    "trainingInput.scheduling.maxWaitTime": "on Vertex AI it counts with FLEX_START alone",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always says chief on Vertex AI",
}
_JOB = {
    "jobDir": "job_dir",
    "network": "network",
    "serviceAccount": "service_account",
    "enableWebAccess": "web_access",
}
_TUNING = {
    "goal": "goal",
    "hyperparameterMetricTag": "metric",
    "maxTrials": "max_trials",
    "maxParallelTrials": "max_parallel_trials",
    "maxFailedTrials": "max_failed_trials",
    "algorithm": "algorithm",
    "enableTrialEarlyStopping": "early_stopping",
}
_PARAM = {
    "parameterName": "name",
    "type": "type",
    "minValue": "min",
    "maxValue": "max",
    "scaleType": "scale",
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
    trainer = {"source": source or module.partition(".")[0], "module": module}
    spec = {
        "name": name,
        "tensorflow": releases[_minor(version)],
        "requirements": requirements,
        "trainer": trainer,
        "args": [str(arg) for arg in training.get("args") or []] or None,
        "roles": _roles(expanded),
        "job": _job(job),
    }
    notes.append(f"note: the runtime {version} becomes images with TensorFlow {spec['tensorflow']}")
    notes += [f"note: {field}: {why}" for field, why in _LOST.items() if get(job, *field.split(".")) not in (None, [])]
    if requirements is None:
        notes.append("note: list what setup.py installs (install_requires) in a requirements file")
    return to_yaml(without_none(spec)), tuple(notes)


def _job(job: Mapping[str, Any]) -> Document:
    training, labels = job["trainingInput"], {**(job.get("labels") or {})}
    labels.pop(KEY, None)
    tuned, longest = training.get("hyperparameters"), get(training, "scheduling", "maxRunningTime")
    of = {
        "target": "vertex",
        "id": job.get("jobId"),
        "labels": labels or None,
        "region": training.get("region"),
        **{here: training.get(there) for there, here in _JOB.items()},
        "pass_job_dir": True if training.get("jobDir") else None,
        "encryption_key": get(training, "encryptionConfig", "kmsKeyName"),
        "hyperparameters": _tuning(tuned) if tuned else None,
        "scheduling": {"max_running": longest} if longest else None,
    }
    return without_none(of)


def _roles(training: Mapping[str, Any]) -> Document:
    """Makes the roles of a TrainingInput without tiers."""
    roles = {}
    for role, prefix in zip(Role, PREFIXES, strict=True):
        count = 1 if role is Role.MASTER else count_of(training.get(f"{prefix}Count"))
        if not count:
            continue
        config = training.get(f"{prefix}Config") or {}
        chip, disk = config.get("acceleratorConfig") or {}, config.get("diskConfig") or {}
        of = {
            "count": None if role is Role.MASTER else count,
            "machine": training.get(f"{prefix}Type"),
            "gpus": without_none({"type": chip.get("type"), "count": count_of(chip.get("count"))}) or None,
            "disk": without_none({"type": disk.get("bootDiskType"), "size_gb": disk.get("bootDiskSizeGb")}) or None,
        }
        roles[role.value] = without_none(of)
    return roles


def _tuning(tuning: Document) -> Document:
    made = {here: tuning[there] for there, here in _TUNING.items() if tuning.get(there)}  # 0 is the API's default
    if made.get("algorithm") == "ALGORITHM_UNSPECIFIED":
        del made["algorithm"]
    return {**made, "params": [_param(param) for param in tuning["params"]]}


def _param(param: Document) -> Document:
    made = {here: str(param[there]) for there, here in _PARAM.items() if there in param}
    if made.get("scale") == "NONE":
        del made["scale"]
    values = param.get("categoricalValues") or param.get("discreteValues")
    return {**made, "values": [str(value) for value in values]} if values else made


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
    for prefix in PREFIXES:
        for key in {"containerCommand", "containerArgs"} & (training.get(f"{prefix}Config") or {}).keys():
            yield FieldError("goes with an image, which the job has not", field=f"trainingInput.{prefix}Config.{key}")
    tpus = [prefix for prefix in PREFIXES if training.get(f"{prefix}Type") == "cloud_tpu"]
    if tpus or training.get("scaleTier") == "BASIC_TPU":
        message = "a TPU beside a CPU master does not carry over: a TPU job on Vertex AI is one TPU VM"
        field = f"trainingInput.{tpus[0]}Type" if tpus else "trainingInput.scaleTier"
        yield FieldError(message, field=field, hint="docs/jobs/vertex.md, A TPU VM")
