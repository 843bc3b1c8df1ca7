"""The `gcloud` command lines of both services, with a file and with flags alone.

Source: gcloud 528.0.0. Its flags win over the file; `region` counts only as a flag; `packageUris` and
`enableWebAccess` in the file are overwritten, so those travel as flags too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.jobs.model import Document

_TRAINING = ("ai-platform", "jobs", "submit", "training")
_ROLE_FLAGS = {"master": "master", "worker": "worker", "parameterServer": "parameter-server"}
_PLAIN_FLAGS = {  # trainingInput's key: its flag
    "region": "--region",
    "jobDir": "--job-dir",
    "runtimeVersion": "--runtime-version",
    "pythonVersion": "--python-version",
    "pythonModule": "--module-name",
    "serviceAccount": "--service-account",
    "network": "--network",
}


def file_command(job: Mapping[str, Any], file: str, project: str | None) -> tuple[str, ...]:
    """The command that submits a Job with its file: what gcloud ignores in the file is a flag."""
    training: Mapping[str, Any] = job["trainingInput"]
    argv = ["gcloud", *_TRAINING, job["jobId"], "--config", file, "--region", training["region"]]
    if training.get("packageUris"):
        argv += ["--packages", ",".join(training["packageUris"]), "--module-name", training["pythonModule"]]
    if training.get("enableWebAccess"):
        argv += ["--enable-web-access"]
    return (*argv, *(["--project", project] if project else []))


def flag_command(job: Mapping[str, Any], project: str | None) -> tuple[str, ...]:
    """The command that submits a Job without a file; raises FieldListError with each field that has no flag."""
    training = dict(job["trainingInput"])
    errors = tuple(_without_flag(training))
    if errors:
        raise FieldListError(errors)
    worker: Document = training.get("workerConfig", {})
    beta = "network" in training or "tpuTfVersion" in worker
    argv = ["gcloud", *(["beta"] if beta else []), *_TRAINING, job["jobId"]]
    argv += ["--scale-tier", training["scaleTier"].lower().replace("_", "-")] if "scaleTier" in training else []
    for role, word in _ROLE_FLAGS.items():
        argv += _role_flags(training, role, word)
    for key, flag in _PLAIN_FLAGS.items():
        argv += [flag, str(training[key])] if key in training else []
    if training.get("packageUris"):
        argv += ["--packages", ",".join(training["packageUris"])]
    if "useChiefInTfConfig" in training:
        argv += ["--use-chief-in-tf-config", str(training["useChiefInTfConfig"]).lower()]
    if "encryptionConfig" in training:
        argv += ["--kms-key", training["encryptionConfig"]["kmsKeyName"]]
    argv += ["--enable-web-access"] if training.get("enableWebAccess") else []
    argv += _labels(job)
    argv += ["--project", project] if project else []
    return (*argv, *(["--", *training["args"]] if training.get("args") else []))


def vertex_file_command(
    name: str, region: str, file: str, *, project: str | None, labels: Mapping[str, str], kms_key: str | None
) -> tuple[str, ...]:
    """The command that submits a CustomJobSpec: name, labels and key are not part of the file."""
    argv = ["gcloud", "ai", "custom-jobs", "create", "--region", region, "--display-name", name, "--config", file]
    argv += _labels({"labels": labels})
    argv += ["--kms-key", kms_key] if kms_key else []
    return (*argv, *(["--project", project] if project else []))


def vertex_flag_command(custom_job: Mapping[str, Any], region: str, project: str | None) -> tuple[str, ...]:
    """The command that submits a CustomJob without a file; raises FieldListError with each field that has no flag."""
    spec: Mapping[str, Any] = custom_job["jobSpec"]
    pools = spec["workerPoolSpecs"]
    errors = tuple(_vertex_without_flag(spec, pools))
    if errors:
        raise FieldListError(errors)
    argv = ["gcloud", "ai", "custom-jobs", "create", "--region", region, "--display-name", custom_job["displayName"]]
    argv += [f"--worker-pool-spec={_pool_flag(pool)}" for pool in pools]
    container = pools[0]["containerSpec"]
    for key, flag in (("command", "--command"), ("args", "--args")):
        argv += [f"{flag}={_listed(container[key])}"] if container.get(key) else []
    for key, flag in (
        ("serviceAccount", "--service-account"),
        ("network", "--network"),
        ("persistentResourceId", "--persistent-resource-id"),
    ):
        argv += [flag, spec[key]] if key in spec else []
    argv += ["--enable-web-access"] if spec.get("enableWebAccess") else []
    argv += ["--enable-dashboard-access"] if spec.get("enableDashboardAccess") else []
    argv += _labels(custom_job)
    key_name = custom_job.get("encryptionSpec", {}).get("kmsKeyName")
    argv += ["--kms-key", key_name] if key_name else []
    return (*argv, *(["--project", project] if project else []))


def _role_flags(training: Mapping[str, Any], role: str, word: str) -> Iterator[str]:
    config: Mapping[str, Any] = training.get(f"{role}Config", {})
    machine, count = training.get(f"{role}Type"), training.get(f"{role}Count")
    if machine:
        yield from (f"--{word}-machine-type", machine)
    if count:
        yield from (f"--{word}-count", str(count))
    if "imageUri" in config:
        yield from (f"--{word}-image-uri", config["imageUri"])
    if "acceleratorConfig" in config:
        chip = config["acceleratorConfig"]
        kind = chip["type"].lower().replace("_", "-")
        yield from (f"--{word}-accelerator", f"count={chip['count']},type={kind}")
    if "tpuTfVersion" in config:
        yield from ("--tpu-tf-version", config["tpuTfVersion"])


def _without_flag(training: Mapping[str, Any]) -> Iterator[FieldError]:
    hint = "write a config.yaml instead: imgtool config without --format gcloud"
    missing = [key for key in ("scheduling", "hyperparameters", "evaluatorType", "evaluatorConfig") if key in training]
    for role in _ROLE_FLAGS:
        config = training.get(f"{role}Config", {})
        missing += [f"{role}Config.{k}" for k in ("diskConfig", "containerCommand", "containerArgs") if k in config]
    for key in missing:
        yield FieldError("gcloud has no flag for it", field=f"trainingInput.{key}", hint=hint)


def _vertex_without_flag(spec: Mapping[str, Any], pools: list[Document]) -> Iterator[FieldError]:
    hint = "write a file instead: imgtool config without --format gcloud"
    flags = {"workerPoolSpecs", "serviceAccount", "network", "enableWebAccess", "enableDashboardAccess"}
    for key in spec:
        if key not in flags | {"persistentResourceId"}:
            yield FieldError("gcloud has no flag for it", field=key, hint=hint)
    first = pools[0].get("containerSpec", {})
    for index, pool in enumerate(pools):
        where = f"workerPoolSpecs[{index}]"
        container = pool.get("containerSpec", {})
        for key in ("diskSpec", "nfsMounts"):
            if key in pool:
                yield FieldError("gcloud has no flag for it", field=f"{where}.{key}", hint=hint)
        if "env" in container:
            yield FieldError("gcloud has no flag for it", field=f"{where}.containerSpec.env", hint=hint)
        if "tpuTopology" in pool.get("machineSpec", {}):
            yield FieldError("gcloud has no flag for it", field=f"{where}.machineSpec.tpuTopology", hint=hint)
        for key in ("command", "args"):
            if pool and container.get(key) != first.get(key):
                yield FieldError("one flag sets it for every pool", field=f"{where}.containerSpec.{key}", hint=hint)


def _pool_flag(pool: Mapping[str, Any]) -> str:
    if not pool:
        return ""
    machine = pool["machineSpec"]
    parts = [f"replica-count={pool['replicaCount']}", f"machine-type={machine['machineType']}"]
    if "acceleratorType" in machine:
        kind = machine["acceleratorType"]
        parts += [f"accelerator-type={kind}", f"accelerator-count={machine['acceleratorCount']}"]
    return ",".join([*parts, f"container-image-uri={pool['containerSpec']['imageUri']}"])


def _listed(values: list[str]) -> str:
    """A list for a gcloud flag: with a comma inside, another delimiter is announced (`gcloud topic escaping`)."""
    if not any("," in value for value in values):
        return ",".join(values)
    delimiter = next(mark for mark in (":", ";", "|", "#", "~~", "@@@") if not any(mark in value for value in values))
    return f"^{delimiter}^{delimiter.join(values)}"


def _labels(job: Mapping[str, Any]) -> list[str]:
    labels: Mapping[str, str] = job.get("labels", {})
    return ["--labels", ",".join(f"{key}={value}" for key, value in labels.items())] if labels else []
