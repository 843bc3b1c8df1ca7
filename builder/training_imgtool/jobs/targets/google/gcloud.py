"""The `gcloud` commands: with a file for AI Platform and Vertex AI, and with flags alone for AI Platform.

Source: gcloud 528.0.0. A flag takes precedence over the same key in the file. gcloud reads `region` only from a flag,
and overwrites `packageUris` and `enableWebAccess` in the file, so imgtool writes these as flags too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from training_imgtool.base.errors import FieldError, FieldListError
from training_imgtool.jobs.model import Document
from training_imgtool.jobs.rules.google import bucket_findings
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
    """Makes the commands that find, watch and stop an AI Platform Job. The service accepts each job ID only once."""
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
    """Makes the commands about a Vertex AI job. They find it by its kind and the label that contains its key."""
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
    """Writes the command that submits a job file; `kind` is `CUSTOM_JOBS` or `TUNING_JOBS`. Some keys become flags."""
    argv = ["gcloud", "ai", kind, "create", "--region", region]
    argv += [*_flag("--display-name", name), *_flag("--config", file), *_labels({"labels": labels})]
    return (*argv, *_flag("--kms-key", kms_key), *_flag("--project", project))


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
        message = "`gcloud ai-platform jobs submit training` has no flag for this key"
        yield FieldError(message, field=f"trainingInput.{key}", hint=_FILE_HINT)
    given = {"job.job_dir": [training.get("jobDir")], "job.package_uris": training.get("packageUris") or []}
    for field, uris in given.items():
        for finding in (finding for uri in uris for finding in bucket_findings(uri, ())):
            yield FieldError(f"gcloud refuses this value in a flag: {finding.message}", field=field)


def _list_flag(flag: str, values: Sequence[str]) -> list[str]:
    """Returns a flag with a list. gcloud splits the list at commas, or at X if the list starts with `^X^`.

    Raises FieldListError if each possible delimiter occurs in a value.
    """
    delimiter = next((mark for mark in ",;|#~" if not any(mark in value for value in values)), None)
    if delimiter is None:
        raise FieldListError((FieldError("the URIs contain all of gcloud's delimiters", field="job.package_uris"),))
    joined = delimiter.join(values)
    is_plain = delimiter == "," and not joined.startswith("^")
    return _flag(flag, joined if is_plain else f"^{delimiter}^{joined}")


def _flag(flag: str, value: object) -> list[str]:
    """Returns the flag and its value, or nothing for None; writes `FLAG=VALUE` if the value starts with a hyphen."""
    if value is None:
        return []
    return [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]


def _labels(job: Mapping[str, Any]) -> list[str]:
    labels: Mapping[str, str] = job.get("labels", {})
    return _flag("--labels", ",".join(f"{key}={value}" for key, value in labels.items()) or None)
