"""Reads an AI Platform Job from gcloud's config.yaml, from the command's flags, or from the output of `jobs describe`.

Source: the ml.v1 discovery document, and gcloud 528.0.0. In gcloud, flags take precedence over the file, and the
arguments after `--` replace those in the file.
"""

from __future__ import annotations

import shlex

from training_imgtool.base.errors import FieldError, FieldListError, InputError, UsageError
from training_imgtool.jobs.model import Document, Severity, format_path
from training_imgtool.jobs.rules.shapes import shape_findings, well_typed
from training_imgtool.jobs.targets.google.gcloud import PLAIN_FLAGS
from training_imgtool.jobs.yamlio import read

_OUTPUT_ONLY = ("createTime", "startTime", "endTime", "state", "errorMessage", "jobPosition", "trainingOutput")
_ROLES = {"master": "master", "worker": "worker", "parameter-server": "parameterServer"}
_TEXT = {flag: key for key, flag in PLAIN_FLAGS.items()}
_IGNORED = {"--config", "--staging-bucket", "--package-path", "--packages", "--project"}  # flags with a value
_ALONE = {"--enable-web-access", "--stream-logs", "--async", "--quiet"}


def read_job(
    text: str, file: str, *, flags: str = "", region: str | None = None, allow_unknown: bool = False
) -> Document:
    """Returns the complete Job that gcloud would send, with only those keys and values that the Job's schema allows.

    Args:
        text: the file's text: a Job, or the part of one that gcloud takes as --config.
        file: the file's name, for messages.
        flags: the flags of the gcloud command that submitted the Job, or the whole command.
        region: the region, which counts like `--region` in `flags`.
        allow_unknown: whether to leave out keys that imgtool does not know, instead of refusing them.

    Raises:
        InputError: the text is not a Job.
        FieldListError: a key or value is wrong.
        UsageError: a flag that gcloud does not have.
    """
    documents = read(text, file)
    job = documents[0].data if len(documents) == 1 else None
    if not isinstance(job, dict) or not isinstance(job.get("trainingInput"), dict):
        raise InputError(
            f"{file}: not an AI Platform Job: expected one document with trainingInput",
            hint="docs/jobs/README.md lists what to write in a spec instead of another service's job file",
        )
    job = {key: value for key, value in job.items() if key not in _OUTPUT_ONLY}
    wrong = [
        f for f in shape_findings(job, "AiPlatformJob", allow_unknown=allow_unknown) if f.severity is Severity.ERROR
    ]
    if wrong:
        raise FieldListError(tuple(FieldError(f.message, field=format_path(f.path), hint=f.hint) for f in wrong))
    job = _with_flags(well_typed(job, "AiPlatformJob"), flags)
    return {**job, "trainingInput": {**job["trainingInput"], **({"region": region} if region else {})}}


def _with_flags(job: Document, flags: str) -> Document:
    """Returns the Job with gcloud's flags applied."""
    words = _words(flags)
    own = words.index("--") if "--" in words else len(words)
    training, made = dict(job["trainingInput"]), dict(job)
    if words[own + 1 :]:
        training["args"] = words[own + 1 :]
    place = 0
    while place < own:
        name, equals, value = words[place].partition("=")
        place += 1
        if not name.startswith("--"):
            made["jobId"] = name
            continue
        if name not in _ALONE and not equals:
            if place >= own:
                raise UsageError(f"--flags: {name} has no value")
            value, place = words[place], place + 1
        _lay_over(made, training, name, value)
    return {**made, "trainingInput": training}


def _words(flags: str) -> list[str]:
    """Splits the flags into words, and drops `gcloud … training` from the start of a whole command."""
    try:
        words = shlex.split(flags.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"--flags: not a command line: {error}") from error
    if words[:1] == ["gcloud"]:
        return words[words.index("training") + 1 :] if "training" in words else words[1:]
    return words


def _lay_over(job: Document, training: Document, name: str, value: str) -> None:
    if name in _TEXT:
        training[_TEXT[name]] = value
    elif name == "--scale-tier":
        training["scaleTier"] = value.upper().replace("-", "_")
    elif name == "--labels":
        job["labels"] = dict(pair.partition("=")[::2] for pair in value.split(","))
    elif name == "--kms-key":
        training["encryptionConfig"] = {"kmsKeyName": value}
    elif name in {"--enable-web-access", "--use-chief-in-tf-config"}:
        key = "enableWebAccess" if name == "--enable-web-access" else "useChiefInTfConfig"
        training[key] = value.lower() != "false"
    elif name == "--tpu-tf-version":
        training["workerConfig"] = {**training.get("workerConfig", {}), "tpuTfVersion": value}
    elif not _lay_over_role(training, name, value) and name not in _IGNORED | _ALONE:
        raise UsageError(f"--flags: {name} is not a flag of gcloud ai-platform jobs submit training")


def _lay_over_role(training: Document, name: str, value: str) -> bool:
    """Applies a flag that concerns one role to the Job; returns False for any other flag."""
    for word, prefix in _ROLES.items():
        config = training.get(f"{prefix}Config", {})
        match name.removeprefix(f"--{word}-"):
            case "machine-type":
                training[f"{prefix}Type"] = value
            case "count":
                training[f"{prefix}Count"] = value
            case "image-uri":
                training[f"{prefix}Config"] = {**config, "imageUri": value}
            case "accelerator":
                chip = dict(pair.partition("=")[::2] for pair in value.split(","))
                kind = chip.get("type", "").upper().replace("-", "_")
                training[f"{prefix}Config"] = {
                    **config,
                    "acceleratorConfig": {"type": kind, "count": chip.get("count", "1")},
                }
            case _:
                continue
        return True
    return False


def flag_value(flags: str, name: str) -> str | None:
    """Returns the value of a flag in the gcloud command, or None; raises UsageError as `read_job` does."""
    words = _words(flags)
    own = words[: words.index("--")] if "--" in words else words
    for place, word in enumerate(own):
        flag, equals, value = word.partition("=")
        if flag == name:
            return value if equals else next(iter(own[place + 1 :]), None)
    return None
