"""What the Kubernetes targets share: names, labels, the container and the Pod around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import FieldError
from training_imgtool.jobs.model import (
    Document,
    Images,
    args_with_job_dir,
    image_of,
    images_hash,
    plain,
    replicas,
    roles_of,
    without_none,
)
from training_imgtool.jobs.shapes import DURATION
from training_imgtool.spec.model import ImageSpec, Role

PORT = 2222
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")  # RFC 1035
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_LABEL_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?\Z")
_LONGEST = 63  # a label, and so a Pod's host name


def job_name(spec: ImageSpec, images: Images) -> str:
    """The object's name: given, or the spec's name and a hash of the images."""
    if spec.job.id:
        return spec.job.id
    name = re.sub(r"[._]", "-", spec.name)
    return f"{name if name[0].isalpha() else f'job-{name}'}-{images_hash(images, spec)}"


def labels(spec: ImageSpec, job: str, role: Role | None = None) -> dict[str, str]:
    """The object's labels: the well-known ones, then the spec's."""
    known = {
        "app.kubernetes.io/name": spec.name,
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": "imgtool",
    }
    of_role = {"app.kubernetes.io/component": role.value} if role else {}
    return {**known, **of_role, **spec.job.labels}


def metadata(spec: ImageSpec, name: str, of: Mapping[str, str]) -> Document:
    """The object's metadata."""
    return without_none({"name": name, "namespace": spec.job.namespace, "labels": dict(of)})


def literal(text: str) -> str:
    """Text that comes through as it is: Kubernetes expands `$(NAME)` and makes `$` of `$$`."""
    return text.replace("$", "$$")


def container(spec: ImageSpec, images: Images, role: Role, name: str, env: list[Document]) -> Document:
    """The role's container. A GPU is a limit, from which Kubernetes takes the request."""
    of_role, volume = spec.roles[role], spec.job.volume
    limits: Document = without_none({"cpu": of_role.cpus, "memory": of_role.memory})
    if of_role.gpus:
        limits["nvidia.com/gpu"] = of_role.gpus.count
    job_dir = spec.job.job_dir or (volume.mount if volume else None)
    return without_none(
        {
            "name": name,
            "image": image_of(images, role),
            "imagePullPolicy": "IfNotPresent",
            "command": [literal(word) for word in of_role.command or ()],
            "args": [literal(arg) for arg in args_with_job_dir(spec, role, job_dir)],
            "env": [*({"name": key, "value": literal(value)} for key, value in spec.job.env.items()), *env],
            "ports": [{"containerPort": PORT, "name": "tfjob-port"}],
            "resources": {"limits": limits} if limits else None,
            "volumeMounts": [{"name": "results", "mountPath": volume.mount}] if volume else None,
        }
    )


def pod_spec(spec: ImageSpec, role: Role, running: Document, **more: Any) -> Document:
    """The Pod around a container; `more` are further keys of the PodSpec."""
    of_role, job, volume = spec.roles[role], spec.job, spec.job.volume
    source: Document = {}
    if volume and volume.claim:
        source = {"persistentVolumeClaim": {"claimName": volume.claim}}
    elif volume:
        source = {"nfs": {"server": volume.nfs_server, "path": volume.nfs_path}}
    return without_none(
        {
            **more,
            "containers": [running],
            "serviceAccountName": job.service_account,
            "imagePullSecrets": [{"name": name} for name in job.image_pull_secrets],
            "nodeSelector": dict(of_role.node_selector),
            "tolerations": [without_none(_toleration(plain(item))) for item in of_role.tolerations],
            "volumes": [{"name": "results", **source}] if volume else None,
        }
    )


def seconds(duration: str | None) -> int | None:
    """Whole seconds of a duration that `errors` found nothing wrong with."""
    return None if duration is None else max(1, int(float(duration.removesuffix("s"))))


def errors(spec: ImageSpec, images: Images, *, suffix: str) -> Iterator[FieldError]:
    """What no Kubernetes target takes.

    Args:
        spec: the spec.
        images: the images, for the job's name.
        suffix: the longest thing that the target adds to the job's name.
    """
    name = job_name(spec, images)
    field = "job.id" if spec.job.id else "name"
    if not _DNS_LABEL.match(name):
        fixed = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        yield FieldError(
            f"{name!r} is not a Kubernetes name: expected a-z, 0-9 and -, a letter first",
            field=field,
            hint=f"for example {fixed if fixed[:1].isalpha() else 'job-' + fixed}",
        )
    if len(name) + len(suffix) > _LONGEST:
        room = _LONGEST - len(suffix)
        yield FieldError(f"{name!r} has {len(name)} characters: with {suffix!r} there is room for {room}", field=field)
    if Role.MASTER not in spec.roles:
        yield FieldError("the role master is missing", field="roles")
    yield from _label_errors(spec)
    yield from _job_errors(spec)
    for role in roles_of(spec):
        yield from _role_errors(spec, role)


def _label_errors(spec: ImageSpec) -> Iterator[FieldError]:
    for key, value in spec.job.labels.items():
        if not _LABEL_KEY.match(key):
            yield FieldError(f"{key!r} is not a label's name", field=f"job.labels.{key}")
        if not _LABEL_VALUE.match(value):
            message = f"{value!r} is not a label's value: expected 63 at most of letters, digits, '-', '_' and '.'"
            yield FieldError(message, field=f"job.labels.{key}")


def _job_errors(spec: ImageSpec) -> Iterator[FieldError]:
    job = spec.job
    names = {"job.namespace": job.namespace, "job.service_account": job.service_account}
    names |= {f"job.image_pull_secrets[{i}]": name for i, name in enumerate(job.image_pull_secrets)}
    for field, name in names.items():
        if name is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            hint = "the name of a Kubernetes ServiceAccount, not an e-mail address" if "@" in name else None
            yield FieldError(f"{name!r} is not a Kubernetes name", field=field, hint=hint)
    times = job.scheduling
    for key in ("max_wait", "max_running", "keep_finished"):
        text = getattr(times, key) if times else None
        if text is not None and not DURATION.match(text):
            yield FieldError(f"{text!r} is not a duration: expected 3600s", field=f"job.scheduling.{key}")
    volume = job.volume
    if volume and bool(volume.claim) is bool(volume.nfs_server and volume.nfs_path):
        yield FieldError("expected either claim, or nfs_server with nfs_path", field="job.volume")


def _role_errors(spec: ImageSpec, role: Role) -> Iterator[FieldError]:
    of_role = spec.roles[role]
    for key in ("cpus", "memory"):
        text = getattr(of_role, key)
        if text is not None and not _QUANTITY.match(text):
            example = "4 or 500m" if key == "cpus" else "16Gi"
            yield FieldError(f"{text!r} is not a quantity: expected {example}", field=f"roles.{role}.{key}")
    for index, item in enumerate(of_role.tolerations):
        field = f"roles.{role}.tolerations[{index}]"
        effects = {None, "NoSchedule", "PreferNoSchedule", "NoExecute"}
        if item.effect not in effects:
            message = f"{item.effect!r}: expected NoSchedule, PreferNoSchedule or NoExecute"
            yield FieldError(message, field=f"{field}.effect")
        if item.operator not in {None, "Exists", "Equal"}:
            yield FieldError(f"{item.operator!r}: expected Exists or Equal", field=f"{field}.operator")
        elif item.operator == "Exists" and item.value is not None:
            yield FieldError("does not go with the operator Exists", field=f"{field}.value")


def is_cluster(spec: ImageSpec) -> bool:
    """Whether there is more than one replica."""
    return sum(replicas(spec).values()) > 1


def _toleration(item: Mapping[str, Any]) -> Document:
    return {key: item[key] for key in ("key", "operator", "value", "effect")}
