"""The `gcloud` command lines of both services, with a file or with flags alone.

Source: gcloud 528.0.0. Its flags take precedence over the file. gcloud reads `region` only from a flag, and overwrites
`packageUris` and `enableWebAccess` in the file, so imgtool writes these as flags too.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.jobs.google import bucket_findings
from training_imgtool.jobs.model import Document
from training_imgtool.jobs.service import JOB, KEY, Service, Standing, key_in, latest, read_objects, result_of

CUSTOM_JOBS = "custom-jobs"
TUNING_JOBS = "hp-tuning-jobs"
_FILE_HINT = "write a file instead: imgtool config without --format gcloud"
_TRAINING = ("ai-platform", "jobs", "submit", "training")
_ROLE_FLAGS = {"master": "master", "worker": "worker", "parameterServer": "parameter-server"}
PLAIN_FLAGS = {  # keys of trainingInput, and their flags
    "region": "--region",
    "jobDir": "--job-dir",
    "runtimeVersion": "--runtime-version",
    "pythonVersion": "--python-version",
    "pythonModule": "--module-name",
    "serviceAccount": "--service-account",
    "network": "--network",
}


def file_command(job: Mapping[str, Any], file: str, project: str | None) -> tuple[str, ...]:
    """Writes the command that submits a Job with a file; keys that gcloud ignores in the file become flags."""
    training: Mapping[str, Any] = job["trainingInput"]
    argv = ["gcloud", *_TRAINING, job["jobId"], *_flag("--config", file), *_flag("--region", training["region"])]
    if training.get("packageUris"):
        argv += [*_list_flag("--packages", training["packageUris"]), *_flag("--module-name", training["pythonModule"])]
    if training.get("enableWebAccess"):
        argv += ["--enable-web-access"]
    return (*argv, *_flag("--project", project))


def ai_platform_service(job: Mapping[str, Any], project: str | None) -> Service:
    """Makes the commands about a Job. The service accepts each job ID only once."""
    verb, name = ("gcloud", *_TRAINING[:2]), str(job["jobId"])
    of = tuple(_flag("--project", project))
    return Service(
        name=name,
        key=job["labels"][KEY],
        find=(*verb, "list", "--filter", f"jobId={name}", "--format", "json", *of),
        read=lambda text: _standing(text, "jobId", job["labels"][KEY]),
        watch=(*verb, "describe", JOB, *of),
        logs=(*verb, "stream-logs", JOB, *of),
        stop=(*verb, "cancel", JOB, *of),
    )


def vertex_service(kind: str, name: str, region: str, key: str, project: str | None) -> Service:
    """Makes commands about a job of `CUSTOM_JOBS` or `TUNING_JOBS`. A label has the key."""
    verb, of = ("gcloud", "ai", kind), ("--region", region, *_flag("--project", project))
    return Service(
        name=name,
        key=key,
        find=(*verb, "list", "--filter", f"labels.{KEY}={key}", "--format", "json", *of),
        read=lambda text: _standing(text, "name", key),
        watch=(*verb, "describe", JOB, *of),
        logs=(*verb, "stream-logs", JOB, *of),
        stop=(*verb, "cancel", JOB, *of),
    )


def _standing(text: str, name: str, key: str) -> Standing | None:
    rows = sorted(read_objects(text), key=lambda row: str(row.get("createTime")), reverse=True)
    found = []
    for row in rows:
        state = str(row.get("state", "PENDING")).removeprefix("JOB_STATE_")
        ended = result_of(state, ("SUCCEEDED",), ("FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"))
        own = str(row[name]).rpartition("/")[2]
        cause = (row.get("error") or {}).get("message") or row.get("errorMessage")
        found.append(Standing(name=own, state=state, key=key_in(row.get("labels")), succeeded=ended, cause=cause))
    return latest(found, key)


def flag_command(job: Mapping[str, Any], project: str | None) -> tuple[str, ...]:
    """Writes the command that submits a Job without a file; raises FieldListError with each field that has no flag."""
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
    for key, flag in PLAIN_FLAGS.items():
        argv += _flag(flag, training.get(key))
    if training.get("packageUris"):
        argv += _list_flag("--packages", training["packageUris"])
    if "useChiefInTfConfig" in training:
        argv += ["--use-chief-in-tf-config", str(training["useChiefInTfConfig"]).lower()]
    if "encryptionConfig" in training:
        argv += ["--kms-key", training["encryptionConfig"]["kmsKeyName"]]
    argv += ["--enable-web-access"] if training.get("enableWebAccess") else []
    argv += [*_labels(job), *_flag("--project", project)]
    return (*argv, *(["--", *training["args"]] if training.get("args") else []))


def vertex_file_command(
    kind: str, name: str, region: str, file: str, *, project: str | None, labels: Mapping[str, str], kms_key: str | None
) -> tuple[str, ...]:
    """Writes the command that submits a file of `CUSTOM_JOBS` or `TUNING_JOBS`; name, labels and KMS key are flags."""
    argv = ["gcloud", "ai", kind, "create", "--region", region]
    argv += [*_flag("--display-name", name), *_flag("--config", file), *_labels({"labels": labels})]
    return (*argv, *_flag("--kms-key", kms_key), *_flag("--project", project))


def vertex_flag_command(custom_job: Mapping[str, Any], region: str, project: str | None) -> tuple[str, ...]:
    """Writes the command that submits a CustomJob without a file; raises FieldListError for fields without a flag."""
    if "studySpec" in custom_job:
        raise FieldListError((_no_flag("gcloud ai custom-jobs create", "studySpec"),))
    spec: Mapping[str, Any] = custom_job["jobSpec"]
    pools = spec["workerPoolSpecs"]
    errors = tuple(_vertex_without_flag(spec, pools))
    if errors:
        raise FieldListError(errors)
    argv = ["gcloud", "ai", CUSTOM_JOBS, "create", "--region", region]
    argv += _flag("--display-name", custom_job["displayName"])
    argv += [f"--worker-pool-spec={_pool_flag(pool)}" for pool in pools]
    container = pools[0]["containerSpec"]
    for key, flag in (("command", "--command"), ("args", "--args")):
        argv += [f"{flag}={list_value(container[key])}"] if container.get(key) else []
    for key, flag in (
        ("serviceAccount", "--service-account"),
        ("network", "--network"),
        ("persistentResourceId", "--persistent-resource-id"),
    ):
        argv += _flag(flag, spec.get(key))
    argv += ["--enable-web-access"] if spec.get("enableWebAccess") else []
    argv += ["--enable-dashboard-access"] if spec.get("enableDashboardAccess") else []
    argv += [*_labels(custom_job), *_flag("--kms-key", custom_job.get("encryptionSpec", {}).get("kmsKeyName"))]
    return (*argv, *_flag("--project", project))


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
    missing = [key for key in ("scheduling", "evaluatorType", "evaluatorConfig") if key in training]
    for role in _ROLE_FLAGS:
        config = training.get(f"{role}Config", {})
        missing += [f"{role}Config.{k}" for k in ("diskConfig", "containerCommand", "containerArgs") if k in config]
    for key in missing:
        yield _no_flag("gcloud ai-platform jobs submit training", f"trainingInput.{key}")
    for key in ("jobDir", "packageUris"):
        values = training.get(key) or []
        for finding in (f for uri in ([values] if key == "jobDir" else values) for f in bucket_findings(uri, ())):
            yield FieldError(f"gcloud refuses it in a flag: {finding.message}", field=f"trainingInput.{key}")


def _no_flag(command: str, field: str) -> FieldError:
    return FieldError(f"`{command}` has no flag for this key", field=field, hint=_FILE_HINT)


def _vertex_without_flag(spec: Mapping[str, Any], pools: list[Document]) -> Iterator[FieldError]:
    flags = {"workerPoolSpecs", "serviceAccount", "network", "enableWebAccess", "enableDashboardAccess"}
    for key in spec:
        if key not in flags | {"persistentResourceId"}:
            yield _no_flag("gcloud ai custom-jobs create", key)
    first = pools[0].get("containerSpec", {})
    yield from _find_repeated(first)
    for index, pool in enumerate(pools):
        where = f"workerPoolSpecs[{index}]"
        container = pool.get("containerSpec", {})
        machine: Mapping[str, Any] = pool.get("machineSpec", {})
        missing: list[str] = [key for key in ("diskSpec", "nfsMounts") if key in pool]
        missing += ["containerSpec.env"] if "env" in container else []
        missing += [f"machineSpec.{key}" for key in ("tpuTopology", "reservationAffinity") if key in machine]
        for key in missing:
            yield _no_flag("gcloud ai custom-jobs create", f"{where}.{key}")
        for key in ("command", "args"):
            if pool and container.get(key) != first.get(key):
                message = "gcloud sets this for all pools at once; the roles differ"
                yield FieldError(message, field=f"{where}.containerSpec.{key}", hint=_FILE_HINT)


def _find_repeated(container: Mapping[str, Any]) -> Iterator[FieldError]:
    """Finds values that one flag contains twice: gcloud treats `--args` and `--command` like sets (`UpdateAction`)."""
    for key in ("command", "args"):
        values = container.get(key, [])
        twice = next((value for index, value in enumerate(values) if value in values[:index]), None)
        if twice is not None:
            message = f"gcloud refuses a flag that contains {twice!r} twice"
            yield FieldError(message, field=f"workerPoolSpecs[0].containerSpec.{key}", hint=_FILE_HINT)


def _pool_flag(pool: Mapping[str, Any]) -> str:
    if not pool:
        return ""
    machine = pool["machineSpec"]
    parts = [f"replica-count={pool['replicaCount']}", f"machine-type={machine['machineType']}"]
    if "acceleratorType" in machine:
        kind = machine["acceleratorType"]
        parts += [f"accelerator-type={kind}", f"accelerator-count={machine['acceleratorCount']}"]
    return ",".join([*parts, f"container-image-uri={pool['containerSpec']['imageUri']}"])


def list_value(values: Sequence[str]) -> str:
    """Returns the values as one argument of a gcloud list flag (`gcloud topic escaping`).

    gcloud splits at commas, or at the delimiter in a leading `^DELIMITER^`, and drops one empty item at the end.
    A delimiter of two different characters that no value contains cannot overlap itself, so gcloud splits only there.

    Raises:
        FieldListError: the values contain every possible delimiter.
    """
    punctuation = [mark for mark in string.punctuation if mark != "^"]
    pairs = ("".join(pair) for pair in permutations(punctuation, 2))
    for delimiter in (",", ":", ";", "|", "#", *punctuation, *pairs):
        if not any(delimiter in value for value in values):
            joined = delimiter.join(values) + ("" if values[-1] else delimiter)
            plain = delimiter == "," and not joined.startswith("^") and joined != "--"  # argparse removes a lone `--`
            return joined if plain else f"^{delimiter}^{joined}"
    error = FieldError("gcloud cannot carry these arguments as a flag", field="args", hint=_FILE_HINT)
    raise FieldListError((error,))


def _list_flag(flag: str, values: Sequence[str]) -> list[str]:
    return _flag(flag, list_value(values))


def _flag(flag: str, value: object) -> list[str]:
    """Returns the flag with its value, or nothing for None; joins a value that looks like a flag with `=`."""
    if value is None:
        return []
    return [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]


def _labels(job: Mapping[str, Any]) -> list[str]:
    labels: Mapping[str, str] = job.get("labels", {})
    return _flag("--labels", ",".join(f"{key}={value}" for key, value in labels.items()) or None)
