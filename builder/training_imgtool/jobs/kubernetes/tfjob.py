"""Kubeflow's TFJob (`kubeflow.org/v1`). The operator writes TF_CONFIG; the container must be called `tensorflow`.

Source: kubeflow/training-operator v1.9: the CRD, its webhook and its defaults.
"""

from __future__ import annotations

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.kubernetes.common import (
    container,
    errors,
    job_name,
    labels,
    metadata,
    pod_spec,
    queue_label,
    seconds,
)
from training_imgtool.jobs.model import Document, Images, JobFile, JobOptions, replicas, says_chief, without_none
from training_imgtool.spec.job import Target
from training_imgtool.spec.model import ImageSpec, Role

UNMAINTAINED = (
    "note: Kubeflow no longer maintains the TFJob operator, and Kueue deprecates it; "
    "--target jobset writes its successor (docs/jobs/from-tfjob.md)"
)
_KIND = {Role.WORKER: "Worker", Role.PS: "PS", Role.EVALUATOR: "Evaluator"}


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Everything that keeps this spec from being a TFJob."""
    first = "chief" if says_chief(spec) else "master"
    pods = (f"-{first if role is Role.MASTER else role}-{count - 1}" for role, count in replicas(spec).items())
    return list(errors(spec, images, suffix=max(pods, key=len)))


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """The TFJob of a spec that `check` found nothing wrong with."""
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
    return JobFile(
        target=Target.TFJOB,
        documents=(document,),
        notes=(UNMAINTAINED,),
        command=("kubectl", "create", "-f", options.file),
        header=(),
    )


def _replica(spec: ImageSpec, images: Images, role: Role, name: str, count: int) -> Document:
    return {
        "replicas": count,
        "restartPolicy": "OnFailure",
        "template": {
            "metadata": {
                "annotations": {"sidecar.istio.io/inject": "false"},
                "labels": labels(spec, name, role),
            },
            "spec": pod_spec(spec, role, container(spec, images, role, "tensorflow", [])),
        },
    }
