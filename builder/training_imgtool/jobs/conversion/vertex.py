"""An AI Platform Job that runs images as Vertex AI's job, with a line for each field that has no counterpart.

The mapping is derived from the two APIs' schemas and from Vertex AI's pages on distributed training and compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError
from training_imgtool.core.reference import Digest, Tag, parse_reference
from training_imgtool.jobs import gcloud
from training_imgtool.jobs.conversion.job import image_uris
from training_imgtool.jobs.conversion.machines import expand_machines
from training_imgtool.jobs.hyperparameters import tuning_job
from training_imgtool.jobs.model import (
    Document,
    JobFile,
    JobOptions,
    Severity,
    count_of,
    format_path,
    get,
    has_job_dir,
    without_none,
)
from training_imgtool.jobs.rules.ai_platform import PREFIXES
from training_imgtool.jobs.rules.vertex import custom_job_spec_findings, tuning_job_findings
from training_imgtool.jobs.tables import machines as machine_table
from training_imgtool.jobs.tables import region_findings
from training_imgtool.jobs.text import command_line
from training_imgtool.spec.targets import Target

_LOST = {
    "etag": "belongs to a patch of an existing job",
    "trainingInput.scaleTier": "Vertex AI has no tiers; the pools are spelt out",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always says chief on Vertex AI",
    "trainingInput.hyperparameters.enableTrialEarlyStopping": "Vertex AI names the rule: the median of other trials",
}


def tags_in(job: Mapping[str, Any]) -> tuple[Tag, ...]:
    """Returns the images that a Job names by tag; a registry knows their digests."""
    references = (parse_reference(uri) for uri in sorted(image_uris(job)))
    return tuple(reference for reference in references if isinstance(reference, Tag))


def convert(
    job: Document, options: JobOptions | None = None, digests: Mapping[Tag, Digest] = MappingProxyType({})
) -> JobFile:
    """Makes the CustomJob or HyperparameterTuningJob for an AI Platform Job that runs images.

    Args:
        job: the Job, as `read_job` returns it.
        options: as for `job_data`.
        digests: the digests of `tags_in`; a tag without one is refused.

    Raises:
        FieldListError: the Job cannot run on Vertex AI as it is; every reason at once.
    """
    options = options or JobOptions()
    errors = [*_refusals(job["trainingInput"]), *_moving(job, digests)]
    if errors:
        raise FieldListError(tuple(errors))
    training, notes = expand_machines(_pin(job["trainingInput"], digests))
    last = max(PREFIXES.index(prefix) for prefix in PREFIXES if _count(training, prefix))
    pools = [_pool(training, prefix) for prefix in PREFIXES[: last + 1]]
    tuning = training.get("hyperparameters")
    whole = _job_spec(training, pools)
    file = tuning_job(tuning, whole) if tuning else _job_spec(training, [pool or _gap(pools[0]) for pool in pools])
    notes += _check_file(file, training.get("region"), allow_unknown=options.allow_unknown)
    body = file if tuning else {"jobSpec": whole}
    return _job_file(job, file, body, (*_lost_lines(job), *notes), options)


def _check_file(file: Document, region: Any, *, allow_unknown: bool) -> list[str]:
    """Notes on the new file; raises FieldListError with its errors."""
    judge = tuning_job_findings if "studySpec" in file else custom_job_spec_findings
    findings = judge(file, region=region, allow_unknown=allow_unknown)
    wrong = []
    if isinstance(region, str):
        findings += region_findings(machine_table("vertex", allow_unknown=allow_unknown), ("region",), region)
    else:
        hint = "--region us-central1"
        wrong.append(FieldError("is missing: a job runs in a region", field="trainingInput.region", hint=hint))
    wrong += [
        FieldError(f.message, field=format_path(f.path), hint=f.hint) for f in findings if f.severity is Severity.ERROR
    ]
    if wrong:
        raise FieldListError(tuple(wrong))
    return [f"{f.severity}: {format_path(f.path)}: {f.message}" for f in findings]


def _job_file(job: Document, file: Document, body: Document, notes: tuple[str, ...], options: JobOptions) -> JobFile:
    training, labels = job["trainingInput"], job.get("labels") or {}
    region, name = str(training["region"]), str(job.get("jobId") or "converted")
    key = get(training, "encryptionConfig", "kmsKeyName")
    kind = gcloud.TUNING_JOBS if "studySpec" in body else gcloud.CUSTOM_JOBS
    command = gcloud.vertex_file_command(kind, name, region, options.file, project=None, labels=labels, kms_key=key)
    encryption = {"kmsKeyName": key} if key else None
    api = without_none({"displayName": name, "labels": labels, "encryptionSpec": encryption, **body})
    return JobFile(
        target=Target.VERTEX,
        documents=(file,),
        notes=notes,
        command=command,
        header=(
            f"Written by imgtool {options.version} for vertex, from an AI Platform Job.",
            "Submit with:",
            *(f"  {line}" for line in command_line(command).splitlines()),
        ),
        api=api,
        flags=lambda: gcloud.vertex_flag_command(api, region, None),
    )


def _moving(job: Document, digests: Mapping[Tag, Digest]) -> Iterator[FieldError]:
    for prefix in PREFIXES:
        image = get(job, "trainingInput", f"{prefix}Config", "imageUri")
        reference = parse_reference(image) if image else None
        if isinstance(reference, Tag) and reference not in digests:
            message = f"{image} is a tag: the registry named no digest for it"
            yield FieldError(message, field=f"trainingInput.{prefix}Config.imageUri")


def _pin(training: Mapping[str, Any], digests: Mapping[Tag, Digest]) -> Document:
    pinned = dict(training)
    for prefix in PREFIXES:
        image = get(training, f"{prefix}Config", "imageUri")
        reference = parse_reference(image) if image else None
        if isinstance(reference, Tag):
            pinned[f"{prefix}Config"] = {**training[f"{prefix}Config"], "imageUri": str(digests[reference])}
    return pinned


def _refusals(training: Mapping[str, Any]) -> Iterator[FieldError]:
    if not get(training, "masterConfig", "imageUri"):
        yield FieldError("is missing: pool 0 needs an image", field="trainingInput.masterConfig.imageUri")
    if get(training, "hyperparameters", "resumePreviousJobId"):
        message = "Vertex AI cannot continue the trials of another job"
        yield FieldError(message, field="trainingInput.hyperparameters.resumePreviousJobId")


def _count(training: Mapping[str, Any], prefix: str) -> int:
    return 1 if prefix == "master" else count_of(training.get(f"{prefix}Count")) or 0


def _pool(training: Mapping[str, Any], prefix: str) -> Document:
    count = _count(training, prefix)
    if not count:
        return {}
    config: Mapping[str, Any] = training.get(f"{prefix}Config") or {}
    machine = training.get(f"{prefix}Type")
    chip = config.get("acceleratorConfig") or {}
    args = [*(config.get("containerArgs") or training.get("args") or [])]
    job_dir = training.get("jobDir")
    if job_dir and not has_job_dir(args):
        args.append(f"--job-dir={job_dir}")  # AI Platform adds it by itself
    container = {
        "imageUri": config.get("imageUri") or get(training, "masterConfig", "imageUri"),
        "command": config.get("containerCommand"),
        "args": args,
    }
    spec = {
        "machineType": "cloud-tpu" if machine == "cloud_tpu" else machine,
        "acceleratorType": chip.get("type"),
        "acceleratorCount": count_of(chip.get("count")),
    }
    return without_none(
        {
            "machineSpec": without_none(spec),
            "replicaCount": count,
            "containerSpec": without_none(container),
            "diskSpec": config.get("diskConfig"),
        }
    )


def _gap(first: Document) -> Document:
    """Makes a pool of none between others: gcloud refuses `{}` in a file."""
    return {
        "machineSpec": {"machineType": first["machineSpec"].get("machineType")},
        "replicaCount": 0,
        "containerSpec": {"imageUri": first["containerSpec"]["imageUri"]},
    }


def _job_spec(training: Mapping[str, Any], pools: list[Document]) -> Document:
    scheduling = {
        "timeout": get(training, "scheduling", "maxRunningTime"),
        "maxWaitDuration": get(training, "scheduling", "maxWaitTime"),
    }
    return without_none(
        {
            "workerPoolSpecs": pools,
            "scheduling": without_none(scheduling),
            "baseOutputDirectory": {"outputUriPrefix": training["jobDir"]} if training.get("jobDir") else None,
            "serviceAccount": training.get("serviceAccount"),
            "network": training.get("network"),
            "enableWebAccess": training.get("enableWebAccess"),
        }
    )


def _lost_lines(job: Mapping[str, Any]) -> list[str]:
    lines = [
        f"no counterpart: {field}: {why}" for field, why in _LOST.items() if get(job, *field.split(".")) is not None
    ]
    for prefix in PREFIXES:
        if get(job, "trainingInput", f"{prefix}Config", "tpuTfVersion") is not None:
            field = f"trainingInput.{prefix}Config.tpuTfVersion"
            lines.append(f"no counterpart: {field}: the image's TensorFlow decides")
    return lines
