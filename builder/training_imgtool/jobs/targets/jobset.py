"""A JobSet (`jobset.x-k8s.io/v1alpha2`): an indexed Job per role, with a TF_CONFIG that follows from the Pods' names.

A Pod's name is `<jobset>-<job>-0-<index>`, in a subdomain with the JobSet's name. TF_CONFIG gets the index from a
variable that Kubernetes itself expands, so the image needs no shell.

Source: kubernetes-sigs/jobset v0.12.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import PORT, Flavour, task_name
from training_imgtool.jobs.frameworks import local_flavour, rules_of
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
    leader,
    replicas,
    without_none,
)
from training_imgtool.jobs.placement import NODE_POOL, slice_of
from training_imgtool.jobs.rules import names
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
POD_INDEX = "batch.kubernetes.io/job-completion-index"  # a label since Kubernetes 1.28
_JOB_LABEL = "metadata.labels['jobset.sigs.k8s.io/job-global-index']"  # the index among all Jobs of a JobSet
_WORKER_0 = {"rules": [{"succeededIndexes": "0"}]}  # as for a TFJob without a chief
_EVICTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}  # then the Job creates a new Pod
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a JobSet."""
    flavour = local_flavour(spec)
    shapes = {role: _shape(spec, role) for role in replicas(spec)}
    pods = (f"-{task_name(flavour, role)}-{jobs - 1}-{count - 1}-abcde" for role, (jobs, count) in shapes.items())
    suffix = max(pods, key=len)  # with the Pod's random end
    return list(errors(spec, images, suffix=suffix))


def _shape(spec: ImageSpec, role: Role) -> tuple[int, int]:
    """Counts the Jobs of a role and the Pods of each Job. A TPU slice is a Job, and the slice's hosts are Pods.

    A framework that numbers its processes across all roles needs a number across Jobs, which a JobSet gives each Job.
    So with several roles, each replica is a Job; with one role, the numbers of the Pods are enough.
    """
    found, count, rules = slice_of(spec, role), replicas(spec)[role], rules_of(spec.framework)
    if found:
        return (count if rules.SPANS_SLICES else 1), found.hosts
    return (count, 1) if rules.RANKED and len(replicas(spec)) > 1 else (1, count)


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the JobSet of a spec in which `check` found no error."""
    name, times = job_name(spec, images), spec.job.scheduling
    flavour = local_flavour(spec)
    restarts = times.restarts if times else None
    ending = rules_of(spec.framework).roles_that_end(spec)
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
                "successPolicy": {
                    "operator": "All",
                    "targetReplicatedJobs": [task_name(flavour, role) for role in ending],
                }
                if ending
                else None,
                "failurePolicy": {"maxRestarts": restarts} if restarts is not None else None,
                "ttlSecondsAfterFinished": seconds(times.keep_finished) if times else None,
                "replicatedJobs": [_make_replicated_job(spec, images, role, name, flavour) for role in replicas(spec)],
            }
        ),
    }
    chief = chief_selector(spec, name, POD_INDEX)
    return job_file(Target.JOBSET, (document,), spec, images, options, chief=chief)


def _make_replicated_job(spec: ImageSpec, images: Images, role: Role, name: str, flavour: Flavour) -> Document:
    (jobs, count), times = _shape(spec, role), spec.job.scheduling
    running = container(spec, images, role, _env(spec, role, name, flavour))
    ends_with_0 = role is Role.WORKER and leader(spec) is role and rules_of(spec.framework).ENDS_WITH_CHIEF
    alone = not spec.job.exclusive_topology and (found := slice_of(spec, role)) is not None and found.hosts > 1
    return {
        "name": task_name(flavour, role),
        "replicas": jobs,
        "template": {
            **({"metadata": {"annotations": {_EXCLUSIVE: NODE_POOL}}} if alone else {}),  # a slice is one node pool
            "spec": without_none(
                {
                    "parallelism": count,
                    "completions": count,
                    "completionMode": "Indexed",
                    "successPolicy": _WORKER_0 if ends_with_0 else None,
                    "backoffLimit": 0,  # a failed Pod fails the Job, and the JobSet decides whether to restart
                    "podFailurePolicy": {"rules": [_EVICTED]},
                    "activeDeadlineSeconds": seconds(times.max_running) if times else None,
                    "template": {
                        "metadata": without_none(
                            {"labels": labels(spec, name, role), "annotations": pod_annotations(spec)}
                        ),
                        "spec": pod_spec(spec, role, running, restartPolicy="Never"),
                    },
                }
            ),
        },
    }


def _env(spec: ImageSpec, role: Role, name: str, flavour: Flavour) -> list[Document]:
    shapes = {r: _shape(spec, r) for r in replicas(spec)}
    hosts = {
        r: [f"{name}-{task_name(flavour, r)}-{job}-{pod}.{name}:{PORT}" for job in range(jobs) for pod in range(pods)]
        for r, (jobs, pods) in shapes.items()
    }
    rules = rules_of(spec.framework)
    if sum(map(len, hosts.values())) == 1 or (rules.SPANS_SLICES and slice_of(spec, role)):
        return []
    told = rules.describe_by_index(spec, flavour, hosts, role)
    if not told:
        return []
    number = _JOB_LABEL if rules.RANKED and len(shapes) > 1 else _INDEX_ANNOTATION
    return [
        {"name": rules.index_variable(spec), "valueFrom": {"fieldRef": {"fieldPath": number}}},
        *({"name": key, "value": value} for key, value in told.items()),
    ]


_JOBS: Path = ("spec", "replicatedJobs")
_RULE_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_MANAGER = re.compile(r"[^/]+/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+\Z")


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:  # noqa: ARG001  one signature
    """Finds what the JobSet webhook refuses after it has set defaults, except wrong keys and kinds of values."""
    spec = document.get("spec")
    jobs = get(document, "spec", "replicatedJobs")
    if not isinstance(spec, dict) or not isinstance(jobs, list):
        message = "is missing: the JobSet runs nothing"
        yield Finding(path=_JOBS, message=message, severity=Severity.WARNING)
        return
    by_name = {job["name"]: job for job in jobs if isinstance(job, dict) and isinstance(job.get("name"), str)}
    seen: list[str] = []
    for index, job in enumerate(jobs):
        if isinstance(job, dict):
            here: Path = (*_JOBS, index)
            yield from _job(job, here, seen)
            yield from _generated_names(document, job, here)
            seen.append(str(job.get("name")))
    yield from _targets(get(spec, "successPolicy", "targetReplicatedJobs"), ("spec", "successPolicy"), by_name)
    yield from _failure_policy(get(spec, "failurePolicy", "rules"), by_name)
    yield from _coordinator(spec.get("coordinator"), by_name)
    manager = spec.get("managedBy")
    if isinstance(manager, str) and not (_MANAGER.match(manager) and len(manager) <= 63):
        message = f"{manager!r}: expected DOMAIN/PATH of 63 characters at most"
        yield Finding(path=("spec", "managedBy"), message=message)


def _job(job: Mapping[str, Any], path: Path, before: list[str]) -> Iterator[Finding]:
    name, waits = job.get("name"), job.get("dependsOn")
    if name in before:
        yield Finding(path=(*path, "name"), message=f"{name!r} appears twice")
    if waits is not None and not before:
        yield Finding(path=(*path, "dependsOn"), message="does not go with the first job: no job comes before it")
    for index, item in enumerate(waits if isinstance(waits, list) and before else []):
        other = item.get("name") if isinstance(item, dict) else None
        if isinstance(other, str) and other not in before:
            where = (*path, "dependsOn", index, "name")
            yield Finding(path=where, message=f"{other!r} is not one of the jobs before: {', '.join(before)}")


def _generated_names(document: Mapping[str, Any], job: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Checks the names of the Jobs; with `completions`, also those of the Pods, which have a random end."""
    metadata = document["metadata"] if isinstance(document.get("metadata"), dict) else {}
    generated = metadata.get("generateName")
    own = metadata.get("name") or (f"{generated}abcde" if generated else None)
    if not isinstance(own, str) or not isinstance(job.get("name"), str):
        return
    longest = f"{own}-{job['name']}-{_last(job.get('replicas', 1))}"
    what, completions = "Job", get(job, "template", "spec", "completions")
    if isinstance(completions, int) and get(job, "template", "spec", "completionMode") in {None, "Indexed"}:
        what, longest = "Pod", f"{longest}-{_last(completions)}-abcde"
    if len(longest) > names.LABEL_LENGTH:
        message = f"the {what} {longest!r} would have more than {names.LABEL_LENGTH} characters"
        yield Finding(path=(*path, "name"), message=message)
    elif names.dns_label(longest, letter_first=True):
        yield Finding(path=(*path, "name"), message=f"{longest!r}: expected a-z, 0-9 and -, a letter first")


def _targets(targets: Any, path: Path, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    for index, target in enumerate(targets if isinstance(targets, list) else []):
        if target not in by_name:
            where = (*path, "targetReplicatedJobs", index)
            yield Finding(path=where, message=f"{target!r} is none of {', '.join(by_name)}")


def _failure_policy(rules: Any, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(rule, dict):
            continue
        path: Path = ("spec", "failurePolicy", "rules", index)
        name = rule.get("name") or f"failurePolicyRule{index}"  # the webhook chooses the other names
        if not _RULE_NAME.match(str(name)):
            message = f"{name!r}: expected letters, digits, '_', ',' and ':', a letter first, 128 at most"
            yield Finding(path=(*path, "name"), message=message)
        if name in seen:
            yield Finding(path=(*path, "name"), message=f"{name!r} appears twice")
        seen.add(str(name))
        yield from _targets(rule.get("targetReplicatedJobs"), path, by_name)


def _coordinator(coordinator: Any, by_name: Mapping[str, Any]) -> Iterator[Finding]:
    if not isinstance(coordinator, dict) or not isinstance(coordinator.get("replicatedJob"), str):
        return
    path: Path = ("spec", "coordinator")
    job = by_name.get(coordinator["replicatedJob"])
    if job is None:
        message = f"{coordinator['replicatedJob']!r} is none of {', '.join(by_name)}"
        yield Finding(path=(*path, "replicatedJob"), message=message)
        return
    completions = get(job, "template", "spec", "completions")
    if not isinstance(completions, int) or get(job, "template", "spec", "completionMode") not in {None, "Indexed"}:
        message = f"the coordinator's job {job['name']} must be Indexed and have completions"
        yield Finding(path=(*path, "replicatedJob"), message=message)
        return
    for key, count in (("jobIndex", job.get("replicas", 1)), ("podIndex", completions)):
        place = coordinator.get(key, 0)
        if isinstance(place, int) and isinstance(count, int) and not 0 <= place < count:
            yield Finding(path=(*path, key), message=f"{place}: expected 0 to {count - 1}")


def _last(count: Any) -> int:
    return count - 1 if isinstance(count, int) and count > 0 else 0
