"""What AI Platform refuses and gcloud does not: the rules of a Job.

Source: the ml.v1 discovery document (revision 20251213) and the behaviour of gcloud 528.0.0; the tables
are in `data/machines.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.google.ai_platform_machines import INPUT as _INPUT
from training_imgtool.jobs.google.ai_platform_machines import PREFIXES, cluster_findings
from training_imgtool.jobs.google.common import (
    GCLOUD,
    bucket_findings,
    duration_findings,
    kms_findings,
    label_findings,
    name_findings,
)
from training_imgtool.jobs.google.hyperparameters import tuning_findings
from training_imgtool.jobs.model import Finding, Severity, add_source, count_of, get
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import Machines, machines, region_findings

_API = "ml.v1 API, revision 20251213"
_FLAGS = {"parameterServer": "parameter-server"}
_JOB_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_TIERS = {"BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM"}
_PYTHONS = ("3.7", "3.5", "2.7")


def job_findings(
    job: Any, *, region: str | None = None, allow_unknown: bool = False, foreign: bool = False
) -> list[Finding]:
    """Everything wrong with a Job, from its keys to its machine table.

    Args:
        job: the document. One without `jobId` is a part of a job, gcloud's config.yaml: flags supply the rest.
        region: what `--region` will say; gcloud overwrites the file's.
        allow_unknown: keys, machines, accelerators and regions that imgtool does not know are warnings.
        foreign: not used: this service's tables change no more.
    """
    del foreign
    findings = list(shape_findings(job, "Job", allow_unknown=allow_unknown))
    job = well_typed(job, "Job") or {}
    findings += _job_id(job)
    findings += label_findings(job.get("labels"), ("labels",))
    training = job.get("trainingInput")
    if isinstance(training, dict):
        tables = machines("ai_platform", allow_unknown=allow_unknown)
        training = {**training, "region": region} if region else training
        findings += _training_input(training, tables, part="jobId" not in job)
    return list(add_source(findings, _API))


def _job_id(job: Mapping[str, Any]) -> Iterator[Finding]:
    job_id = job.get("jobId")
    if isinstance(job_id, str) and not (_JOB_ID.match(job_id) and len(job_id) <= 128):
        fixed = re.sub(r"\W", "_", job_id, flags=re.ASCII)[:128]
        yield Finding(
            path=("jobId",),
            message=f"{job_id!r} is not a job's name: expected letters, digits and _, a letter first, 128 at most",
            hint=f"for example {fixed if fixed[:1].isalpha() else 'job_' + fixed[:124]}",
        )


def _training_input(training: dict[str, Any], tables: Machines, *, part: bool) -> Iterator[Finding]:
    yield from _layout(training, part=part)
    yield from _container_or_package(training, part=part)
    yield from name_findings(training, _INPUT)
    yield from bucket_findings(training.get("jobDir"), (*_INPUT, "jobDir"))
    yield from kms_findings(
        get(training, "encryptionConfig", "kmsKeyName"), (*_INPUT, "encryptionConfig", "kmsKeyName")
    )
    yield from duration_findings(
        get(training, "scheduling", "maxWaitTime"), (*_INPUT, "scheduling", "maxWaitTime"), least=1800
    )
    priority = get(training, "scheduling", "priority")
    if isinstance(priority, int) and not 0 <= priority <= 1000:
        yield Finding(path=(*_INPUT, "scheduling", "priority"), message=f"{priority}: expected 0 to 1000")
    region = training.get("region")
    if region is None:
        message = "every job runs in a region, such as us-central1"
        yield _missing("region", message, "--region", part=part)
    elif isinstance(region, str):
        yield from region_findings(tables, (*_INPUT, "region"), region)
    yield from cluster_findings(training, tables)
    yield from tuning_findings(training.get("hyperparameters"), (*_INPUT, "hyperparameters"))


def _missing(key: str, message: str, flag: str, *, part: bool) -> Finding:
    """A key that a whole Job must have, and that a flag gives to a part of one."""
    if part:
        return Finding(path=(*_INPUT, key), message=f"{flag} gives it", severity=Severity.HINT)
    return Finding(path=(*_INPUT, key), message=f"is missing: {message}")


def _layout(training: Mapping[str, Any], *, part: bool) -> Iterator[Finding]:
    if training.get("scaleTier", "BASIC") not in _TIERS:
        return  # its shape has a finding
    sized = [k for p in PREFIXES for k in (f"{p}Type", f"{p}Count") if k in training]
    if part and "scaleTier" not in training and sized:
        yield Finding(path=(*_INPUT, "scaleTier"), message="--scale-tier custom gives it", severity=Severity.HINT)
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
                yield Finding(path=(*_INPUT, key), message=message, severity=severity)
        elif prefix != "master" and (count not in training or count_of(training[count]) is not None):
            yield from _check_count(training, prefix, count_of(training.get(count)), part=part)


def _check_count(training: Mapping[str, Any], prefix: str, number: int | None, *, part: bool) -> Iterator[Finding]:
    kind, count = f"{prefix}Type", f"{prefix}Count"
    if number is not None and number < 0:
        yield Finding(path=(*_INPUT, count), message=f"{number}: expected 0 or more")
    elif number and kind not in training:
        yield _missing(kind, f"{count} is {number}", f"--{_FLAGS.get(prefix, prefix)}-machine-type", part=part)
    elif not number:
        dead = [key for key in (kind, f"{prefix}Config") if key in training]
        if dead:
            message = f"has no effect{' with ' + dead[1] if dead[1:] else ''}: {count} is {number or 0}"
            yield Finding(path=(*_INPUT, dead[0]), message=message, severity=Severity.WARNING)


def _container_or_package(training: Mapping[str, Any], *, part: bool) -> Iterator[Finding]:
    image = get(training, "masterConfig", "imageUri")
    images = [prefix for prefix in PREFIXES if get(training, f"{prefix}Config", "imageUri")]
    package_keys = [k for k in ("runtimeVersion", "pythonVersion", "packageUris", "pythonModule") if k in training]
    if images and not image:
        message = f"is missing: {images[0]} has an image, and gcloud looks only at the master's"
        severity = Severity.HINT if part else Severity.ERROR
        path = (*_INPUT, "masterConfig", "imageUri")
        yield Finding(path=path, message=message, hint="--master-image-uri gives it", severity=severity, source=GCLOUD)
    if images:
        for key in package_keys:
            severity = Severity.ERROR if key == "runtimeVersion" else Severity.WARNING
            message = "does not go with an image: the image brings its own"
            yield Finding(path=(*_INPUT, key), message=message, severity=severity)
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
            path=(*_INPUT, "args"), message=f"does not go with containerCommand or containerArgs, which {own[0]} has"
        )
    for prefix in PREFIXES:
        for key in ("containerCommand", "containerArgs"):
            if not image and get(training, f"{prefix}Config", key):
                yield Finding(path=(*_INPUT, f"{prefix}Config", key), message="goes only with an image")


def _check_overwritten(training: Mapping[str, Any]) -> Iterator[Finding]:
    for key, flag in (("packageUris", "--packages"), ("enableWebAccess", "--enable-web-access")):
        if training.get(key):
            message = f"gcloud overwrites it: give {flag} as well"
            yield Finding(path=(*_INPUT, key), message=message, severity=Severity.WARNING)


def _runtime(training: Mapping[str, Any]) -> Iterator[Finding]:
    python = training.get("pythonVersion")
    if isinstance(python, str) and python not in _PYTHONS:
        yield Finding(path=(*_INPUT, "pythonVersion"), message=f"{python!r}: expected {', '.join(_PYTHONS)}")
    version = training.get("runtimeVersion")
    if isinstance(version, str) and not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        message = f"{version!r}: expected MAJOR.MINOR, such as 2.11"
        yield Finding(path=(*_INPUT, "runtimeVersion"), message=message, severity=Severity.WARNING)
    uris = training.get("packageUris")
    for index, uri in enumerate(uris if isinstance(uris, list) else []):
        yield from bucket_findings(uri, (*_INPUT, "packageUris", index))
    if isinstance(uris, list) and len(uris) > 100:
        yield Finding(path=(*_INPUT, "packageUris"), message=f"{len(uris)} packages: expected 100 at most")
