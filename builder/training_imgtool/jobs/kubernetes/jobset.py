"""A JobSet (`jobset.x-k8s.io/v1alpha2`): an indexed Job per role, TF_CONFIG worked out from the Pods' names.

A Pod is `<jobset>-<job>-0-<index>` in the subdomain that carries the JobSet's name. The index reaches
TF_CONFIG through a variable that Kubernetes itself expands, so the image needs no shell.

Source: kubernetes-sigs/jobset v0.12.0.
"""

from __future__ import annotations

import json

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.cluster import PORT, Flavour, cluster_spec, task_name, tf_config
from training_imgtool.jobs.kubernetes.common import (
    container,
    errors,
    is_cluster,
    job_name,
    labels,
    literal,
    metadata,
    pod_spec,
    queue_label,
    seconds,
)
from training_imgtool.jobs.model import (
    Document,
    Images,
    JobFile,
    JobOptions,
    leader,
    replicas,
    says_chief,
    without_none,
)
from training_imgtool.spec.job import Target
from training_imgtool.spec.model import ImageSpec, Role

_INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_INDEX_VARIABLE = "TF_TASK_INDEX"
_INDEX = f"$({_INDEX_VARIABLE})"
_WORKER_0 = {"rules": [{"succeededIndexes": "0"}]}  # as for a TFJob without a chief
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Everything that keeps this spec from being a JobSet."""
    flavour = Flavour.LOCAL if says_chief(spec) else Flavour.LOCAL_MASTER
    pods = (f"-{task_name(flavour, role)}-0-{count - 1}-abcde" for role, count in replicas(spec).items())
    problems = list(errors(spec, images, suffix=max(pods, key=len)))  # the webhook counts a Pod's random ending too
    if _INDEX_VARIABLE in spec.job.env:
        message = "imgtool sets this variable: TF_CONFIG takes the Pod's index from it"
        problems.append(FieldError(message, field=f"job.env.{_INDEX_VARIABLE}"))
    return problems


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """The JobSet of a spec that `check` found nothing wrong with."""
    name, times = job_name(spec, images), spec.job.scheduling
    flavour = Flavour.LOCAL if says_chief(spec) else Flavour.LOCAL_MASTER
    restarts = times.restarts if times else None
    document: Document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(
            spec,
            name,
            {**labels(spec, name), **queue_label(spec)},
            {_EXCLUSIVE: spec.job.exclusive_topology} if spec.job.exclusive_topology else None,
        ),
        "spec": without_none(
            {
                "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
                "successPolicy": {  # the chief's end is the job's: parameter servers never end by themselves
                    "operator": "All",
                    "targetReplicatedJobs": [task_name(flavour, leader(spec) or Role.MASTER)],
                },
                "failurePolicy": {"maxRestarts": restarts} if restarts is not None else None,
                "ttlSecondsAfterFinished": seconds(times.keep_finished) if times else None,
                "replicatedJobs": [_make_replicated_job(spec, images, role, name, flavour) for role in replicas(spec)],
            }
        ),
    }
    return JobFile(
        target=Target.JOBSET,
        documents=(document,),
        notes=(),
        command=("kubectl", "create", "-f", options.file),
        header=(),
    )


def _make_replicated_job(spec: ImageSpec, images: Images, role: Role, name: str, flavour: Flavour) -> Document:
    count, times = replicas(spec)[role], spec.job.scheduling
    running = container(spec, images, role, "tensorflow", _env(spec, role, name, flavour))
    return {
        "name": task_name(flavour, role),
        "replicas": 1,
        "template": {
            "spec": without_none(
                {
                    "parallelism": count,
                    "completions": count,
                    "completionMode": "Indexed",
                    "successPolicy": _WORKER_0 if role is Role.WORKER and leader(spec) is role else None,
                    "backoffLimit": 0,  # a failed Pod fails the Job; the JobSet decides about restarts
                    "activeDeadlineSeconds": seconds(times.max_running) if times else None,
                    "template": {
                        "metadata": {"labels": labels(spec, name, role)},
                        "spec": pod_spec(spec, role, running, restartPolicy="Never"),
                    },
                }
            )
        },
    }


def _env(spec: ImageSpec, role: Role, name: str, flavour: Flavour) -> list[Document]:
    if not is_cluster(spec):
        return []
    hosts = {
        r: [f"{name}-{task_name(flavour, r)}-0-{index}.{name}:{PORT}" for index in range(count)]
        for r, count in replicas(spec).items()
    }
    values = {"TF_CONFIG": tf_config(flavour, hosts, role, 0), "CLUSTER_SPEC": cluster_spec(flavour, hosts, role, 0)}
    texts = {key: literal(json.dumps(value, separators=(",", ":"))) for key, value in values.items()}
    return [
        {"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": _INDEX_ANNOTATION}}},
        *({"name": key, "value": text.replace('"index":0', f'"index":{_INDEX}')} for key, text in texts.items()),
    ]
