"""Plain Pods, one per replica, and a headless Service per role, which gives the Pods DNS names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.cluster import PORT, to_texts
from training_imgtool.jobs.frameworks import local_flavour, rules_of
from training_imgtool.jobs.kubernetes import (
    container,
    errors,
    is_cluster,
    job_file,
    job_name,
    labels,
    literal,
    metadata,
    pod_annotations,
    pod_spec,
    queue_label,
    seconds,
)
from training_imgtool.jobs.model import Document, Finding, Images, JobFile, JobOptions, leader, replicas
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_MANY = 100
_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"  # Kueue admits the Pods of a group together
_GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
Change = Callable[[Document, Role], Document]


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be Pods."""
    return list(errors(spec, images, suffix=longest_suffix(spec)))


def longest_suffix(spec: ImageSpec) -> str:
    """Returns the longest text that follows the job's name in the name of a Pod; empty for a single Pod."""
    pods = [f"-{role}-{count - 1}" for role, count in replicas(spec).items()]
    return max(pods, key=len) if is_cluster(spec) else ""


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the Pods of a spec in which `check` found no error."""
    return pods_file(Target.PODS, spec, images, options, lambda pod, _role: pod)


def pods_file(
    target: Target,
    spec: ImageSpec,
    images: Images,
    options: JobOptions,
    change: Change,
    *,
    before: tuple[Document, ...] = (),
    notes: tuple[str, ...] = (),
) -> JobFile:
    """Makes a job file: the objects in `before`, then Services, then Pods, each of which `change` edits for the target.

    After the chief has ended, the command `end` of the job file deletes the other Pods.
    """
    name, role = job_name(spec, images), leader(spec) or Role.MASTER
    whole = (*before, *_services(spec, images), *_pods(spec, images, change))
    notes = (*notes, *_stay_note(spec, images), *_size_note(spec))
    if not is_cluster(spec):
        return job_file(target, whole, spec, images, options, chief=(name,), notes=notes)
    others = f"app.kubernetes.io/instance={name},app.kubernetes.io/component!={role}"
    end = ("kubectl", "delete", "pods", "--wait=false", "--selector", others)
    return job_file(target, whole, spec, images, options, chief=(f"{name}-{role}-0",), end=end, notes=notes)


def _stay_note(spec: ImageSpec, images: Images) -> list[str]:
    """Tells the user how to end the replicas that are left when the chief has ended."""
    if not is_cluster(spec):
        return []
    selector = f"app.kubernetes.io/instance={job_name(spec, images)}"
    selector += f" --namespace {spec.job.namespace}" if spec.job.namespace else ""
    first = "master" if leader(spec) is Role.MASTER else "worker 0"
    return [f"note: when the {first} is done, end the others with kubectl delete pods,services -l {selector}"]


def _size_note(spec: ImageSpec) -> list[str]:
    """Warns if there are so many Pods that the list of all Pods in each of them makes the file large."""
    count = sum(replicas(spec).values())
    if count <= _MANY:
        return []
    return [f"warning: roles: {count} Pods that each list the whole cluster make a large file; jobset lists it once"]


def _services(spec: ImageSpec, images: Images) -> list[Document]:
    """Makes a headless Service per role, so that each Pod has the name `POD.SERVICE`; none for a single replica."""
    if not is_cluster(spec):
        return []
    name = job_name(spec, images)
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(spec, f"{name}-{role}", labels(spec, name, role)),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"app.kubernetes.io/instance": name, "app.kubernetes.io/component": role.value},
                "ports": [{"name": rules_of(spec.framework).CONTAINER, "port": PORT}],
            },
        }
        for role in replicas(spec)
    ]


def _pods(spec: ImageSpec, images: Images, change: Change) -> list[Document]:
    """Makes a Pod per replica, each with its own TF_CONFIG."""
    name = job_name(spec, images)
    return [
        change(_pod(spec, images, role, index, name), role)
        for role, count in replicas(spec).items()
        for index in range(count)
    ]


def _pod(spec: ImageSpec, images: Images, role: Role, index: int, name: str) -> Document:
    times = spec.job.scheduling
    own = f"{name}-{role}-{index}" if is_cluster(spec) else name
    place = {"hostname": own, "subdomain": f"{name}-{role}"} if is_cluster(spec) else {}
    queued = {**queue_label(spec), _GROUP_NAME: name} if spec.job.queue and is_cluster(spec) else queue_label(spec)
    total = {_GROUP_TOTAL: str(sum(replicas(spec).values()))} if _GROUP_NAME in queued else {}
    running = container(spec, images, role, _env(spec, role, index, name))
    deadline = seconds(times.max_running) if times else None
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(spec, own, {**labels(spec, name, role), **queued}, {**total, **pod_annotations(spec)}),
        "spec": pod_spec(spec, role, running, restartPolicy="OnFailure", activeDeadlineSeconds=deadline, **place),
    }


def _env(spec: ImageSpec, role: Role, index: int, name: str) -> list[Document]:
    if not is_cluster(spec):
        return []
    hosts = {r: [f"{name}-{r}-{i}.{name}-{r}:{PORT}" for i in range(count)] for r, count in replicas(spec).items()}
    told = rules_of(spec.framework).describe(spec, local_flavour(spec), hosts, role, index)
    return [{"name": key, "value": literal(value)} for key, value in to_texts(told).items()]


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterable[Finding]:  # noqa: ARG001  one signature
    """Finds nothing, because the shapes and the rules of Pods and Services cover everything."""
    return ()
