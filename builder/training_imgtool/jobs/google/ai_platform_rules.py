"""What AI Platform refuses and gcloud does not: the rules of a Job, whoever wrote it.

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
    bucket_findings,
    duration_findings,
    kms_findings,
    label_findings,
    name_findings,
)
from training_imgtool.jobs.google.hyperparameters import tuning_findings
from training_imgtool.jobs.model import Finding, count_of, get
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import Machines, machines, region_findings

_JOB_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_TIERS = {"BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU", "BASIC_TPU", "CUSTOM"}
_PYTHONS = ("3.7", "3.5", "2.7")


def job_findings(job: Any, *, allow_unknown: bool = False) -> list[Finding]:
    """Everything wrong with a Job, from its keys to its machine table."""
    found = list(shape_findings(job, "Job", allow_unknown=allow_unknown))
    job = well_typed(job, "Job") or {}
    found += _job_id(job)
    found += label_findings(job.get("labels"), ("labels",))
    training = job.get("trainingInput")
    if isinstance(training, dict):
        tables = machines("ai_platform", allow_unknown=allow_unknown)
        found += _training_input(training, tables)
    return found


def _job_id(job: Mapping[str, Any]) -> Iterator[Finding]:
    job_id = job.get("jobId")
    if isinstance(job_id, str) and not (_JOB_ID.match(job_id) and len(job_id) <= 128):
        fixed = re.sub(r"\W", "_", job_id, flags=re.ASCII)[:128]
        yield Finding(
            path=("jobId",),
            message=f"{job_id!r} is not a job's name: expected letters, digits and _, a letter first, 128 at most",
            hint=f"for example {fixed if fixed[:1].isalpha() else 'job_' + fixed[:124]}",
        )


def _training_input(training: dict[str, Any], tables: Machines) -> Iterator[Finding]:
    yield from _layout(training)
    yield from _container_or_package(training)
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
        yield Finding(path=(*_INPUT, "region"), message="is missing: every job runs in a region, such as us-central1")
    elif isinstance(region, str):
        yield from region_findings(tables, (*_INPUT, "region"), region)
    yield from cluster_findings(training, tables)
    yield from tuning_findings(training.get("hyperparameters"), (*_INPUT, "hyperparameters"))


def _layout(training: Mapping[str, Any]) -> Iterator[Finding]:
    if training.get("scaleTier", "BASIC") not in _TIERS:
        return  # its shape has said so
    custom = training.get("scaleTier") == "CUSTOM"
    if custom and "masterType" not in training:
        yield Finding(path=(*_INPUT, "masterType"), message="is missing: scaleTier CUSTOM needs it")
    for prefix in PREFIXES:
        kind, count = f"{prefix}Type", f"{prefix}Count"
        if not custom:
            tier = training.get("scaleTier", "BASIC, as none is given")
            for key in (key for key in (kind, count) if key in training):
                yield Finding(path=(*_INPUT, key), message=f"goes only with scaleTier CUSTOM; here it is {tier}")
        elif prefix != "master" and (count not in training or count_of(training[count]) is not None):
            yield from _counted(training, prefix, count_of(training.get(count)))


def _counted(training: Mapping[str, Any], prefix: str, number: int | None) -> Iterator[Finding]:
    kind, count = f"{prefix}Type", f"{prefix}Count"
    if number is not None and number < 0:
        yield Finding(path=(*_INPUT, count), message=f"{number}: expected 0 or more")
    elif number and kind not in training:
        yield Finding(path=(*_INPUT, kind), message=f"is missing: {count} is {number}")
    elif not number:
        dead = [key for key in (kind, f"{prefix}Config") if key in training]
        if dead:
            message = f"has no effect{' with ' + dead[1] if dead[1:] else ''}: {count} is {number or 0}"
            yield Finding(path=(*_INPUT, dead[0]), message=message)


def _container_or_package(training: Mapping[str, Any]) -> Iterator[Finding]:
    image = get(training, "masterConfig", "imageUri")
    images = [prefix for prefix in PREFIXES if get(training, f"{prefix}Config", "imageUri")]
    package_keys = [k for k in ("runtimeVersion", "pythonVersion", "packageUris", "pythonModule") if k in training]
    if images and not image:
        yield Finding(
            path=(*_INPUT, "masterConfig", "imageUri"),
            message=f"is missing: {images[0]} has an image, and gcloud looks only at the master's",
        )
    if images:
        for key in package_keys:
            yield Finding(path=(*_INPUT, key), message="does not go with an image: the image brings its own")
    else:
        for key in ("runtimeVersion", "packageUris", "pythonModule"):
            if key not in training:
                yield Finding(path=(*_INPUT, key), message="is missing: a job has images, or a runtime and a package")
        yield from _runtime(training)
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


def _runtime(training: Mapping[str, Any]) -> Iterator[Finding]:
    python = training.get("pythonVersion")
    if isinstance(python, str) and python not in _PYTHONS:
        yield Finding(path=(*_INPUT, "pythonVersion"), message=f"{python!r}: expected {', '.join(_PYTHONS)}")
    version = training.get("runtimeVersion")
    if isinstance(version, str) and not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        yield Finding(path=(*_INPUT, "runtimeVersion"), message=f"{version!r}: expected MAJOR.MINOR, such as 2.11")
    uris = training.get("packageUris")
    for index, uri in enumerate(uris if isinstance(uris, list) else []):
        yield from bucket_findings(uri, (*_INPUT, "packageUris", index))
    if isinstance(uris, list) and len(uris) > 100:
        yield Finding(path=(*_INPUT, "packageUris"), message=f"{len(uris)} packages: expected 100 at most")
