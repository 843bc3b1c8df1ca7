"""What AI Platform refuses and gcloud does not: the rules of a Job.

Source: the ml.v1 discovery document (revision 20251213) and the behaviour of gcloud 528.0.0; the tables
are in `data/machines/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.google import (
    GCLOUD,
    bucket_findings,
    image_findings,
    kms_findings,
)
from training_imgtool.jobs.hyperparameters import tuning_findings
from training_imgtool.jobs.model import Finding, Path, Severity, add_source, count_of, get
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import (
    Machines,
    accelerator_region_findings,
    gpu_findings,
    machines,
    nearest,
    region_findings,
)

INPUT: Path = ("trainingInput",)
PREFIXES = ("master", "worker", "parameterServer", "evaluator")
AGENT = "service-PROJECT_NUMBER@cloud-ml.google.com.iam.gserviceaccount.com"
_API = "ml.v1 API, revision 20251213"
_FLAGS = {"parameterServer": "parameter-server"}
_TIERS = {"BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM"}
_RUNTIMES = {  # Google's page on runtime versions
    "3.5": (((1, 13), (1, 14)), "1.13 and 1.14"),
    "3.7": (((1, 15), (9, 0)), "1.15 and later"),
}


def job_findings(job: Any, *, region: str | None = None, allow_unknown: bool) -> list[Finding]:
    """Finds everything wrong with a Job, from its keys to its machine table.

    Args:
        job: the document. One without `jobId` is a part of a job, gcloud's config.yaml: flags supply the rest.
        region: what `--region` will say; gcloud overwrites the file's.
        allow_unknown: keys, machines, accelerators and regions that imgtool does not know are warnings.
    """
    findings = list(shape_findings(job, "AiPlatformJob", allow_unknown=allow_unknown))
    job = well_typed(job, "AiPlatformJob") or {}
    training = job.get("trainingInput")
    if isinstance(training, dict):
        tables = machines("ai_platform", allow_unknown=allow_unknown)
        training = {**training, "region": region} if region else training
        findings += _training_input(training, tables, part="jobId" not in job)
    return list(add_source(findings, _API))


def _training_input(training: dict[str, Any], tables: Machines, *, part: bool) -> Iterator[Finding]:
    yield from _layout(training, part=part)
    yield from _container_or_package(training, part=part)
    yield from bucket_findings(training.get("jobDir"), (*INPUT, "jobDir"))
    yield from kms_findings(get(training, "encryptionConfig", "kmsKeyName"), (*INPUT, "encryptionConfig", "kmsKeyName"))
    region = training.get("region")
    if region is None:
        message = "every job runs in a region, such as us-central1"
        yield _missing("region", message, "--region", part=part)
    elif isinstance(region, str):
        yield from region_findings(tables, (*INPUT, "region"), region)
    yield from cluster_findings(training, tables)
    yield from tuning_findings(training.get("hyperparameters"), (*INPUT, "hyperparameters"))


def _missing(key: str, message: str, flag: str, *, part: bool) -> Finding:
    """Reports a key that a whole Job must have, and that a flag gives to a part of one."""
    if part:
        return Finding(path=(*INPUT, key), message=f"{flag} gives it", severity=Severity.HINT)
    return Finding(path=(*INPUT, key), message=f"is missing: {message}")


def _layout(training: Mapping[str, Any], *, part: bool) -> Iterator[Finding]:
    if training.get("scaleTier", "BASIC") not in _TIERS:
        return  # its shape has a finding
    sized = [k for p in PREFIXES for k in (f"{p}Type", f"{p}Count") if k in training]
    if part and "scaleTier" not in training and sized:
        yield Finding(path=(*INPUT, "scaleTier"), message="--scale-tier custom gives it", severity=Severity.HINT)
    custom = training.get("scaleTier") == "CUSTOM" or (part and "scaleTier" not in training and bool(sized))
    if custom and "masterType" not in training:
        yield _missing("masterType", "scaleTier CUSTOM needs it", "--master-machine-type", part=part)
    for prefix in PREFIXES:
        kind, count = f"{prefix}Type", f"{prefix}Count"
        if not custom:
            tier = training.get("scaleTier", "BASIC, as none is given")
            for key in (key for key in (kind, count) if key in training):
                message = f"goes only with scaleTier CUSTOM; here it is {tier}"
                severity = Severity.ERROR if key == count else Severity.WARNING
                yield Finding(path=(*INPUT, key), message=message, severity=severity)
        elif prefix != "master" and (count not in training or count_of(training[count]) is not None):
            yield from _check_count(training, prefix, count_of(training.get(count)), part=part)


def _check_count(training: Mapping[str, Any], prefix: str, number: int | None, *, part: bool) -> Iterator[Finding]:
    kind, count = f"{prefix}Type", f"{prefix}Count"
    if number and number > 0 and kind not in training:
        yield _missing(kind, f"{count} is {number}", f"--{_FLAGS.get(prefix, prefix)}-machine-type", part=part)
    elif not number or number < 0:
        dead = [key for key in (kind, f"{prefix}Config") if key in training]
        if dead:
            message = f"has no effect{' with ' + dead[1] if dead[1:] else ''}: {count} is {number or 0}"
            yield Finding(path=(*INPUT, dead[0]), message=message, severity=Severity.WARNING)


def _container_or_package(training: Mapping[str, Any], *, part: bool) -> Iterator[Finding]:
    image = get(training, "masterConfig", "imageUri")
    images = [prefix for prefix in PREFIXES if get(training, f"{prefix}Config", "imageUri")]
    package_keys = [k for k in ("runtimeVersion", "pythonVersion", "packageUris", "pythonModule") if k in training]
    if images and not image:
        message = f"is missing: {images[0]} has an image, and gcloud looks only at the master's"
        severity = Severity.HINT if part else Severity.ERROR
        path = (*INPUT, "masterConfig", "imageUri")
        yield Finding(path=path, message=message, hint="--master-image-uri gives it", severity=severity, source=GCLOUD)
    if images:
        for key in package_keys:
            severity = Severity.ERROR if key == "runtimeVersion" else Severity.WARNING
            message = "does not go with an image: the image brings its own"
            yield Finding(path=(*INPUT, key), message=message, severity=severity)
    else:
        for key, flag in (
            ("runtimeVersion", "--runtime-version, or --master-image-uri,"),
            ("packageUris", "--packages or --package-path"),
            ("pythonModule", "--module-name"),
        ):
            if key not in training:
                yield _missing(key, "a job has images, or a runtime and a package", flag, part=part)
        yield from _runtime(training)
    if part:
        yield from _check_overwritten(training)
    yield from _commands(training, image)


def _commands(training: Mapping[str, Any], image: Any) -> Iterator[Finding]:
    own = [f"{prefix}Config" for prefix in PREFIXES for key in ("containerCommand", "containerArgs")
           if get(training, f"{prefix}Config", key)]  # fmt: skip
    if own and training.get("args"):
        yield Finding(
            path=(*INPUT, "args"), message=f"does not go with containerCommand or containerArgs, which {own[0]} has"
        )
    for prefix in PREFIXES:
        for key in ("containerCommand", "containerArgs"):
            if not image and get(training, f"{prefix}Config", key):
                yield Finding(path=(*INPUT, f"{prefix}Config", key), message="goes only with an image")


def _check_overwritten(training: Mapping[str, Any]) -> Iterator[Finding]:
    for key, flag in (("packageUris", "--packages"), ("enableWebAccess", "--enable-web-access")):
        if training.get(key):
            message = f"gcloud overwrites it: give {flag} as well"
            yield Finding(path=(*INPUT, key), message=message, severity=Severity.WARNING)


def _runtime(training: Mapping[str, Any]) -> Iterator[Finding]:
    python = training.get("pythonVersion")
    version = training.get("runtimeVersion")
    if isinstance(version, str) and not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        message = f"{version!r}: expected MAJOR.MINOR, such as 2.11"
        yield Finding(path=(*INPUT, "runtimeVersion"), message=message, severity=Severity.WARNING)
    elif isinstance(version, str) and python in _RUNTIMES:
        (first, last), words = _RUNTIMES[python]
        if not first <= tuple(int(part) for part in version.split(".")) <= last:
            message = f"Python {python} goes with runtime versions {words}, not {version}"
            yield Finding(path=(*INPUT, "pythonVersion"), message=message, severity=Severity.WARNING)
    uris = training.get("packageUris")
    for index, uri in enumerate(uris if isinstance(uris, list) else []):
        yield from bucket_findings(uri, (*INPUT, "packageUris", index))


def cluster_findings(training: Mapping[str, Any], tables: Machines) -> Iterator[Finding]:
    """Checks whether each role's machine, accelerator, image and disk go together and with the master's."""
    yield from _category(training, tables)
    for prefix in PREFIXES:
        yield from _replica(training, prefix, tables)


def _category(training: Mapping[str, Any], tables: Machines) -> Iterator[Finding]:
    master = training.get("masterType")
    legacy = tables.table["legacy"]
    for prefix in PREFIXES[1:]:
        kind = training.get(f"{prefix}Type")
        if not (isinstance(master, str) and isinstance(kind, str)) or "cloud_tpu" in {master, kind}:
            continue
        if (kind in legacy) is not (master in legacy):
            words = {True: "a legacy type", False: "a Compute Engine type"}
            yield Finding(
                path=(*INPUT, f"{prefix}Type"),
                message=f"{kind} is {words[kind in legacy]}, but masterType {master} is {words[master in legacy]}: "
                "a job has one sort",
            )


def _replica(training: Mapping[str, Any], prefix: str, tables: Machines) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config")
    kind, config = training.get(f"{prefix}Type"), training.get(f"{prefix}Config")
    if isinstance(kind, str):
        yield from _machine(kind, (*INPUT, f"{prefix}Type"), tables)
    if not isinstance(config, dict):
        config = {}
    region = training.get("region") if isinstance(training.get("region"), str) else None
    yield from image_findings(config.get("imageUri"), (*path, "imageUri"), region, AGENT)
    chip = config.get("acceleratorConfig")
    if isinstance(chip, dict):
        yield from _accelerator(chip, prefix, training, tables)
    yield from _tpu(training, prefix, kind, config, tables)
    yield from _disk(config.get("diskConfig"), (*path, "diskConfig"))


def _machine(kind: str, path: Path, tables: Machines) -> Iterator[Finding]:
    choices = [*tables.gpus_by_machine, *tables.table["legacy"], tables.table["tpu"]["machine"]]
    if kind not in choices:
        hint = "it is spelt cloud_tpu here" if kind == "cloud-tpu" else nearest(kind, choices)
        yield Finding(
            path=path,
            message=f"{kind!r} is not a machine type of AI Platform",
            hint=hint or "--allow-unknown accepts it",
            severity=tables.unknown,
        )


def _accelerator(
    config: Mapping[str, Any], prefix: str, training: Mapping[str, Any], tables: Machines
) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config", "acceleratorConfig")
    kind, region = training.get(f"{prefix}Type"), training.get("region")
    accelerator, count = config.get("type"), count_of(config.get("count"))
    if accelerator is None or count is None:
        missing = "type" if accelerator is None else "count"
        yield Finding(path=(*path, missing), message="is missing: an accelerator has a type and a count")
        return
    if not isinstance(accelerator, str):
        return
    if isinstance(region, str):
        yield from accelerator_region_findings(tables, (*path, "type"), accelerator, region)
    if kind == "cloud_tpu":
        yield from _tpu_shape(path, accelerator, count, tables)
    elif accelerator.startswith("TPU_"):
        yield Finding(path=(*path, "type"), message=f"{accelerator} needs {prefix}Type cloud_tpu, not {kind}")
    elif isinstance(kind, str) and kind in tables.table["legacy"]:
        yield Finding(
            path=path,
            message=f"does not go with the legacy type {kind}, which has "
            f"{_has(tables.table['legacy'][kind])}: expected a Compute Engine type such as n1-standard-8",
        )
    elif isinstance(kind, str):
        yield from gpu_findings(
            tables,
            machine_type=kind,
            count=((*path, "count"), count),
            gpu=((*path, "type"), accelerator),
        )
    elif training.get("scaleTier") != "CUSTOM":  # with CUSTOM the missing type is an error of its own
        yield Finding(path=path, message=f"needs scaleTier CUSTOM and {prefix}Type, a Compute Engine type")


def _tpu_shape(path: Path, accelerator: str, count: int, tables: Machines) -> Iterator[Finding]:
    counts = tables.table["tpu"]["counts"]
    if not accelerator.startswith("TPU_"):
        yield Finding(
            path=(*path, "type"), message=f"{accelerator} does not go with cloud_tpu: expected TPU_V2 or TPU_V3"
        )
    elif accelerator not in counts:
        yield Finding(
            path=(*path, "type"),
            message=f"the sizes of {accelerator} are not known here; TPU_V2 and TPU_V3 are",
            severity=tables.unknown,
        )
    elif count not in counts[accelerator]:
        yield Finding(path=(*path, "count"), message=f"{count} x {accelerator}: expected {counts[accelerator][0]}")


def _tpu(
    training: Mapping[str, Any], prefix: str, kind: Any, config: Mapping[str, Any], tables: Machines
) -> Iterator[Finding]:
    path: Path = (*INPUT, f"{prefix}Config", "tpuTfVersion")
    version = config.get("tpuTfVersion")
    basic_tpu = training.get("scaleTier") == "BASIC_TPU" and prefix == "worker"
    image = config.get("imageUri") or get(training, "masterConfig", "imageUri")
    if kind != "cloud_tpu" and not basic_tpu:
        if version is not None:
            yield Finding(path=path, message=f"goes only with a cloud_tpu worker; {prefix}Type is {kind}")
        return
    if kind == "cloud_tpu" and prefix != "worker":
        message = "cloud_tpu is documented for the worker, beside a master without a TPU"
        yield Finding(path=(*INPUT, f"{prefix}Type"), message=message, severity=Severity.WARNING)
    if kind == "cloud_tpu" and prefix == "worker" and (count_of(training.get("workerCount")) or 0) > 1:
        yield Finding(path=(*INPUT, "workerCount"), message="a job has one cloud_tpu worker: expected 1")
    if image and version is None and prefix == "worker":
        yield Finding(path=path, message="is missing: a TPU worker with an image names its TensorFlow, such as 2.11")
    elif isinstance(version, str) and not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        yield Finding(path=path, message=f"{version!r}: expected TensorFlow's MAJOR.MINOR, such as 2.11")
    elif isinstance(version, str) and version not in tables.table["tpu"]["runtimes"]:
        choices = ", ".join(tables.table["tpu"]["runtimes"])
        yield Finding(
            path=path,
            message=f"imgtool's list has no TPU runtime {version}; it has {choices}",
            severity=Severity.WARNING,
        )


def _disk(disk: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(disk, dict):
        return
    size = disk.get("bootDiskSizeGb")
    if isinstance(size, int) and size < 100:
        yield Finding(
            path=(*path, "bootDiskSizeGb"),
            message=f"{size} GB is below the default of 100; whether the service takes less is not documented",
            severity=Severity.WARNING,
        )


def _has(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {gpu}" for gpu, count in gpus.items()) or "no GPU"
