"""An existing AI Platform Job as Vertex AI's CustomJob, with a line for each field that has no counterpart.

Google's own table could not be had; this one is derived from the two APIs' schemas and from Vertex AI's
pages on distributed training and compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from training_imgtool.core.errors import FieldError, FieldListError, InputError
from training_imgtool.core.reference import Digest, Tag, parse_reference
from training_imgtool.jobs.google import gcloud
from training_imgtool.jobs.google.ai_platform_machines import PREFIXES
from training_imgtool.jobs.google.vertex_rules import custom_job_spec_findings, tuning_job_findings
from training_imgtool.jobs.google.vertex_tuning import tuning_job
from training_imgtool.jobs.model import Document, JobFile, JobOptions, count_of, dotted, get, has_job_dir, without_none
from training_imgtool.jobs.model import Severity as Level
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import machines as machine_table
from training_imgtool.jobs.tables import region_findings
from training_imgtool.jobs.text import command_line
from training_imgtool.jobs.yamlio import read
from training_imgtool.spec.model import Target
from training_imgtool.yamlfile.reader import read_bytes

_LOST = {
    "etag": "belongs to a patch of an existing job",
    "trainingInput.scaleTier": "Vertex AI has no tiers; the pools are spelt out",
    "trainingInput.scheduling.priority": "Vertex AI has no priorities",
    "trainingInput.useChiefInTfConfig": "TF_CONFIG always says chief on Vertex AI",
    "trainingInput.hyperparameters.enableTrialEarlyStopping": "Vertex AI names the rule: the median of other trials",
}
_TIERS = {"BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The Job that is converted."""

    job: Mapping[str, Any]

    @property
    def training(self) -> Mapping[str, Any]:
        return self.job["trainingInput"]  # type: ignore[no-any-return]


def tags_in(text: str, file: str) -> tuple[Tag, ...]:
    """The images that a Job names by tag, for whoever can ask the registry for their digests."""
    training = _job(text, file)["trainingInput"]
    uris = {get(training, f"{prefix}Config", "imageUri") for prefix in PREFIXES} - {None}
    references = (parse_reference(uri) for uri in sorted(uris))
    return tuple(reference for reference in references if isinstance(reference, Tag))


def convert(
    text: str,
    file: str,
    target: Target,
    options: JobOptions | None = None,
    digests: Mapping[Tag, Digest] = MappingProxyType({}),
) -> JobFile:
    """The Vertex file for the AI Platform Job in `text`.

    Args:
        text: the Job, YAML or JSON.
        file: its name, for messages.
        target: only `vertex` has a conversion.
        options: as for `job_data`.
        digests: what the tags of `tags_in` are; a tag that is not there is refused.

    Raises:
        InputError: the text is no Job, or another target was asked for.
        FieldListError: the Job cannot run on Vertex AI as it is; every reason at once.
    """
    options = options or JobOptions()
    if target is not Target.VERTEX:
        raise InputError(f"--from reads an AI Platform Job and writes --target vertex, not {target}")
    job = _job(text, file)
    wrong = [f for f in shape_findings(job, "Job", allow_unknown=options.allow_unknown) if f.severity is Level.ERROR]
    if wrong:
        raise FieldListError(tuple(FieldError(f.message, field=dotted(f.path), hint=f.hint) for f in wrong))
    job = well_typed(job, "Job")
    for prefix in PREFIXES:
        config = job["trainingInput"].get(f"{prefix}Config", {})
        if "imageUri" in config:
            config["imageUri"] = _pinned(config["imageUri"], digests)
    moving = [
        FieldError(
            f"{image} is a tag: the registry named no digest for it", field=f"trainingInput.{prefix}Config.imageUri"
        )
        for prefix in PREFIXES
        if (image := get(job, "trainingInput", f"{prefix}Config", "imageUri"))
        and not isinstance(parse_reference(image), Digest)
    ]
    if moving:
        raise FieldListError(tuple(moving))
    return _convert(_Source(job=job), options)


def convert_file(
    path: Path,
    *,
    allow_unknown: bool = False,
    version: str = "0",
    output: str = "config.yaml",
    digests: Mapping[Tag, Digest] = MappingProxyType({}),
) -> JobFile:
    """`convert` of a file to Vertex AI; `output` is the new file's name in the submit command.

    Raises InputError also when the file cannot be read.
    """
    options = JobOptions(allow_unknown=allow_unknown, version=version, file=output)
    text = read_bytes(path).decode("utf-8", errors="replace")
    return convert(text, str(path), Target.VERTEX, options, digests)


def _job(text: str, file: str) -> Document:
    documents = read(text, file)
    job = documents[0].data if len(documents) == 1 else None
    if not isinstance(job, dict) or not isinstance(job.get("trainingInput"), dict):
        raise InputError(f"{file}: not an AI Platform Job: expected one document with trainingInput")
    return job


def _pinned(image: str, digests: Mapping[Tag, Digest]) -> str:
    reference = parse_reference(image)
    return str(digests.get(reference, reference)) if isinstance(reference, Tag) else str(reference)


def _convert(source: _Source, options: JobOptions) -> JobFile:
    job, training = source.job, source.training
    gaps = [prefix for prefix in PREFIXES if _count(training, prefix)]
    errors = _refusals(training)
    if errors:
        raise FieldListError(tuple(errors))
    last = PREFIXES.index(gaps[-1])
    pools = [_pool(training, prefix) for prefix in PREFIXES[: last + 1]]
    region, name = training.get("region"), str(job.get("jobId") or "converted")
    tuning = training.get("hyperparameters")
    whole = _job_spec(training, pools)
    file = tuning_job(tuning, whole) if tuning else _job_spec(training, [pool or _gap(pools[0]) for pool in pools])
    judge = tuning_job_findings if tuning else custom_job_spec_findings
    found = judge(file, region=region, allow_unknown=options.allow_unknown)
    if isinstance(region, str):
        tables = machine_table("vertex", allow_unknown=options.allow_unknown)
        found += region_findings(tables, ("region",), region)
    wrong = [FieldError(f.message, field=dotted(f.path), hint=f.hint) for f in found if f.severity is Level.ERROR]
    if not isinstance(region, str):
        wrong.append(FieldError("is missing: a job runs in a region", field="trainingInput.region"))
    if wrong:
        raise FieldListError(tuple(wrong))
    key, labels = get(training, "encryptionConfig", "kmsKeyName"), job.get("labels") or {}
    kind = gcloud.TUNING_JOBS if tuning else gcloud.CUSTOM_JOBS
    command = gcloud.vertex_file_command(
        kind, name, str(region), options.file, project=None, labels=labels, kms_key=key
    )
    encryption = {"kmsKeyName": key} if key else None
    body = file if tuning else {"jobSpec": whole}
    api = without_none({"displayName": name, "labels": labels, "encryptionSpec": encryption, **body})
    return JobFile(
        target=Target.VERTEX,
        documents=(file,),
        notes=(*_lost_lines(job), *(f"{f.severity}: {dotted(f.path)}: {f.message}" for f in found)),
        command=command,
        header=(
            f"Written by imgtool {options.version} for vertex, from an AI Platform Job.",
            "Submit with:",
            *(f"  {line}" for line in command_line(command).splitlines()),
        ),
        api=api,
        flags=lambda: gcloud.vertex_flag_command(api, str(region), None),
    )


def _refusals(training: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    if "runtimeVersion" in training or "packageUris" in training:
        errors.append(
            FieldError(
                "runs on AI Platform's own runtime, which Vertex AI does not have",
                field="trainingInput.runtimeVersion",
                hint="build images (imgtool build), or use one of Google's with a pythonPackageSpec",
            )
        )
    elif not get(training, "masterConfig", "imageUri"):
        errors.append(FieldError("is missing: pool 0 needs an image", field="trainingInput.masterConfig.imageUri"))
    if get(training, "hyperparameters", "resumePreviousJobId"):
        message = "Vertex AI cannot continue the trials of another job"
        errors.append(FieldError(message, field="trainingInput.hyperparameters.resumePreviousJobId"))
    tier = training.get("scaleTier")
    if tier in _TIERS or "masterType" not in training:
        errors.append(
            FieldError(
                f"{tier or 'no scaleTier'} says nothing about machines, which Vertex AI wants spelt out",
                field="trainingInput.scaleTier",
                hint="use CUSTOM with masterType, workerType and so on",
            )
        )
    return errors


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
    """A pool of none between others: gcloud refuses `{}` in a file."""
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
