"""Kubeflow's TFJob (`kubeflow.org/v1`). The operator writes TF_CONFIG. The container's name must be `tensorflow`.

Source: kubeflow/training-operator v1.9: the CRD, its webhook and its defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.frameworks import says_chief
from training_imgtool.jobs.kubernetes import (
    chief_selector,
    container,
    errors,
    job_file,
    job_name,
    labels,
    metadata,
    pod_annotations,
    pod_spec,
    queue_label,
    seconds,
)
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    Severity,
    get,
    replicas,
    without_none,
)
from training_imgtool.jobs.tables import nearest
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

UNMAINTAINED = (
    "note: Kubeflow no longer maintains the TFJob operator, and Kueue deprecates it; "
    "--target jobset writes its successor (docs/jobs/from-tfjob.md)"
)
_MANAGERS = ("", "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_POD_INDEX = "training.kubeflow.org/replica-index"
_TYPES = {
    name.lower(): name for name in ("Chief", "Master", "Worker", "PS", "Evaluator")
}  # the operator accepts upper and lower case
_KIND = {Role.WORKER: "Worker", Role.PS: "PS", Role.EVALUATOR: "Evaluator"}


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a TFJob."""
    first = "chief" if says_chief(spec) else "master"
    pods = (f"-{first if role is Role.MASTER else role}-{count - 1}" for role, count in replicas(spec).items())
    return list(errors(spec, images, suffix=max(pods, key=len)))


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the TFJob of a spec in which `check` found no error."""
    name = job_name(spec, images)
    first = "Chief" if says_chief(spec) else "Master"
    times = spec.job.scheduling
    policy = without_none(
        {
            "cleanPodPolicy": "Running",  # parameter servers never end by themselves
            "activeDeadlineSeconds": seconds(times.max_running) if times else None,
            "backoffLimit": times.restarts if times else None,
            "ttlSecondsAfterFinished": seconds(times.keep_finished) if times else None,
            "schedulingPolicy": {"scheduleTimeoutSeconds": seconds(times.max_wait)}
            if times and times.max_wait
            else None,
        }
    )
    document: Document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata(spec, name, {**labels(spec, name), **queue_label(spec)}),
        "spec": {
            "runPolicy": policy,
            "tfReplicaSpecs": {
                _KIND.get(role, first): _replica(spec, images, role, name, count)
                for role, count in replicas(spec).items()
            },
        },
    }
    chief = chief_selector(spec, name, _POD_INDEX)
    return job_file(Target.TFJOB, (document,), spec, images, options, chief=chief, notes=(UNMAINTAINED,))


def _replica(spec: ImageSpec, images: Images, role: Role, name: str, count: int) -> Document:
    return {
        "replicas": count,
        "restartPolicy": "OnFailure",
        "template": {
            "metadata": {
                "annotations": {"sidecar.istio.io/inject": "false", **pod_annotations(spec)},
                "labels": labels(spec, name, role),
            },
            "spec": pod_spec(spec, role, container(spec, images, role, [])),
        },
    }


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:  # noqa: ARG001  one signature
    """Finds what the operator and its webhook refuse in a TFJob, except wrong keys and kinds of values."""
    specs, path = get(document, "spec", "tfReplicaSpecs"), ("spec", "tfReplicaSpecs")
    if not isinstance(specs, dict):
        return
    if not specs:
        message = "is empty: expected Chief, Worker, PS or Evaluator"
        yield Finding(path=path, message=message, severity=Severity.WARNING)
    if {"Chief", "Master"} <= specs.keys():
        yield Finding(path=(*path, "Master"), message="Chief and Master mean the same: expected one of them")
    for key, replica in specs.items():
        kind = _TYPES.get(key.lower())
        if kind is None or (kind != key and kind in specs):
            severity = Severity.WARNING if allow_unknown else Severity.ERROR
            hint = nearest(key, _TYPES.values())
            yield Finding(
                path=(*path, key), message=f"{key!r} is not a key here", hint=hint, severity=severity, at_key=True
            )
            continue
        if kind != key:
            message = f"the operator reads it as {kind}"
            yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)
        if isinstance(replica, dict):
            yield from _replica_findings(kind, replica, (*path, key))
    manager = get(document, "spec", "runPolicy", "managedBy")
    if manager is not None and manager not in _MANAGERS:
        where = ("spec", "runPolicy", "managedBy")
        yield Finding(path=where, message=f"{manager!r}: expected {_MANAGERS[1]} or {_MANAGERS[2]}")
    message = "the operator is no longer maintained, and Kueue deprecates it; JobSet is its successor"
    yield Finding(path=("kind",), message=message, severity=Severity.WARNING)


def _replica_findings(key: str, replica: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    count = replica.get("replicas")
    if isinstance(count, int) and (count < 0 or (key in {"Chief", "Master"} and count != 1)):
        expected = f"there is one {key}" if count >= 0 else "expected 0 or more"
        yield Finding(path=(*path, "replicas"), message=f"{count}: {expected}", severity=Severity.WARNING)
    if replica.get("restartPolicy") == "ExitCode":
        message = (
            "the operator restarts only after exit codes 128 to 255; any other code fails the job, despite backoffLimit"
        )
        yield Finding(path=(*path, "restartPolicy"), message=message, severity=Severity.WARNING)
    containers = get(replica, "template", "spec", "containers")
    if isinstance(containers, list):
        running = [get(item, "name") for item in containers if isinstance(item, dict)]
        if "tensorflow" not in running:
            message = f"{', '.join(map(str, running)) or 'no container'}: one must be called tensorflow"
            yield Finding(path=(*path, "template", "spec", "containers"), message=message)
