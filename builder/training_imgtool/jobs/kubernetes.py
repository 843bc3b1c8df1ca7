"""What the Kubernetes targets share: names, labels, the container and the Pod around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs import launcher, placement
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.model import (
    SHM,
    Document,
    Images,
    JobFile,
    JobOptions,
    args_with_job_dir,
    get,
    image_of,
    job_key,
    leader,
    passed_job_dir,
    plain,
    replicas,
    results_folder,
    roles_of,
    without_none,
)
from training_imgtool.jobs.rules import names
from training_imgtool.jobs.service import Argv, Service, Standing, Trouble, key_in, read_objects, result_of
from training_imgtool.model.job import Volume
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

PORT = 2222
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?\Z")
_SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}\Z")
_OWN_LABELS = ("name", "instance", "managed-by", "component")
_ENDING = {"Pod", "JobSet", "TFJob", "TrainJob"}
_SUCCEEDED = {"Succeeded", "Completed", "Complete"}
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def job_name(spec: ImageSpec, images: Images) -> str:
    """Returns the object's name: `job.id`, or else the spec's name followed by the job's key."""
    if spec.job.id:
        return spec.job.id
    name = re.sub(r"[._]", "-", spec.name)
    return f"{name if name[0].isalpha() else f'job-{name}'}-{job_key(images, spec)}"


def labels(spec: ImageSpec, job: str, role: Role | None = None) -> dict[str, str]:
    """Returns the object's labels: the `app.kubernetes.io` labels, and those of the spec."""
    standard = {
        "app.kubernetes.io/name": spec.name[: names.LABEL_LENGTH].rstrip("._-"),
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": "imgtool",
    }
    of_role = {"app.kubernetes.io/component": role.value} if role else {}
    return {**standard, **of_role, **spec.job.labels}


def metadata(
    spec: ImageSpec, name: str, of: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Document:
    """Makes the object's metadata, without empty parts."""
    return without_none(
        {"name": name, "namespace": spec.job.namespace, "labels": dict(of), "annotations": dict(annotations or {})}
    )


def queue_label(spec: ImageSpec) -> dict[str, str]:
    """Makes the labels that assign an object to a Kueue LocalQueue, if the spec names one."""
    priority = {"kueue.x-k8s.io/priority-class": spec.job.queue_priority} if spec.job.queue_priority else {}
    return {QUEUE_LABEL: spec.job.queue, **priority} if spec.job.queue else {}


def pod_annotations(spec: ImageSpec) -> dict[str, str]:
    """Makes a Pod's annotations. They tell Kueue to place a role's Pods near each other, and GKE to mount buckets."""
    fuse = {"gke-gcsfuse/volumes": "true"} if any(volume.bucket for volume in spec.job.volumes) else {}
    wanted = {"required": spec.job.required_topology, "preferred": spec.job.preferred_topology}
    return {**{f"kueue.x-k8s.io/podset-{word}-topology": label for word, label in wanted.items() if label}, **fuse}


def literal(text: str) -> str:
    """Escapes text, because Kubernetes expands `$(NAME)` and turns `$$` into `$`."""
    return text.replace("$", "$$")


def container(spec: ImageSpec, images: Images, role: Role, env: list[Document]) -> Document:
    """Makes the role's container, named after the framework. Kubernetes uses its limits as requests, too."""
    of_role, rules = spec.roles[role], rules_of(spec.framework)
    limits = {**without_none({"cpu": of_role.cpus, "memory": of_role.memory}), **placement.limits(spec, role)}
    mounts = [{"name": f"volume-{index}", "mountPath": each.mount} for index, each in enumerate(spec.job.volumes)]
    mounts += [{"name": "shm", "mountPath": SHM}] if _shares_memory(spec, role) else []
    secrets = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key or variable}}}
        for variable, ref in spec.job.secrets.items()
    ]
    job_dir = passed_job_dir(spec, spec.job.job_dir or results_folder(spec))
    return without_none(
        {
            "name": rules.CONTAINER,
            "image": image_of(images, role),
            "imagePullPolicy": "IfNotPresent",
            "command": [literal(word) for word in launcher.entrypoint(spec, role)],
            "args": [literal(arg) for arg in args_with_job_dir(spec, role, job_dir)],
            "env": [*({"name": key, "value": literal(value)} for key, value in spec.job.env.items()), *secrets, *env],
            "ports": [{"containerPort": PORT, "name": rules.PORT_NAME}],
            "resources": {"limits": limits} if limits else None,
            "volumeMounts": mounts,
        }
    )


def _shares_memory(spec: ImageSpec, role: Role) -> bool:
    """Tells whether the role needs more than a container's 64 MB of /dev/shm, as NCCL and libtpu do."""
    own = any(volume.mount == SHM for volume in spec.job.volumes)
    return shares_memory(spec) or (bool(placement.limits(spec, role)) and not own)


def shares_memory(spec: ImageSpec) -> bool:
    """Tells whether data loaders need a large /dev/shm, and no volume of the spec is mounted there."""
    return rules_of(spec.framework).SHARES_MEMORY and not any(volume.mount == SHM for volume in spec.job.volumes)


def _volume(volume: Volume) -> Document:
    """Makes a volume of a Pod. For a bucket or a folder in a bucket, the volume names GKE's driver."""
    if volume.bucket:
        bucket, _, folder = volume.bucket.removeprefix("gs://").partition("/")
        options = ",".join(["implicit-dirs", *([f"only-dir={folder.strip('/')}"] if folder else [])])
        attributes = {"bucketName": bucket, "mountOptions": options}
        return {"csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path}}
    if volume.memory:
        return {"emptyDir": {"medium": "Memory", "sizeLimit": volume.memory}}
    return {"nfs": {"server": volume.nfs_server, "path": volume.nfs_path}}


def pod_spec(spec: ImageSpec, role: Role, running: Document, **more: Any) -> Document:
    """Makes the PodSpec around the container `running`; `more` are further keys of the PodSpec."""
    job = spec.job
    volumes = [{"name": f"volume-{index}", **_volume(volume)} for index, volume in enumerate(job.volumes)]
    if _shares_memory(spec, role):
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    return without_none(
        {
            **more,
            "containers": [running],
            "serviceAccountName": job.service_account,
            "imagePullSecrets": [{"name": name} for name in job.image_pull_secrets],
            "priorityClassName": job.priority_class,
            "terminationGracePeriodSeconds": job.grace_period,
            "nodeSelector": placement.selector(spec, role),
            "tolerations": [*own_tolerations(spec, role), *placement.tolerations(spec, role)],
            "volumes": volumes,
        }
    )


def seconds(duration: str | None) -> int | None:
    """Converts a valid duration, such as `90s`, to whole seconds."""
    return None if duration is None else int(float(duration.removesuffix("s")))


def errors(spec: ImageSpec, images: Images, *, suffix: str) -> Iterator[FieldError]:
    """Finds values that no Kubernetes target accepts.

    Args:
        spec: the spec.
        images: the images, for the job's name.
        suffix: the longest text that the target and its controllers add to the job's name.
    """
    name = job_name(spec, images)
    field = "job.id" if spec.job.id else "name"
    start = name if len(name) <= names.LABEL_LENGTH else name[: names.LABEL_LENGTH].rstrip("-")
    if names.dns_label(start, letter_first=True):
        fixed = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        yield FieldError(
            f"{name!r} is not a Kubernetes name: expected a-z, 0-9 and -, a letter first and no - last",
            field=field,
            hint=f"for example {fixed if fixed[:1].isalpha() else 'job-' + fixed}",
        )
    room = names.LABEL_LENGTH - len(suffix)
    if len(name) > room:
        yield FieldError(
            f"{name!r} has {len(name)} characters: expected {room} at most, because {suffix!r} follows the name",
            field=field,
            hint=None if spec.job.id else "give job.id a shorter name",
        )
    yield from _label_errors(spec)
    yield from _name_errors(spec)
    yield from _number_errors(spec)
    for role in roles_of(spec):
        yield from _role_errors(spec, role)


def _label_errors(spec: ImageSpec) -> Iterator[FieldError]:
    for key, problem in names.labels(spec.job.labels):
        yield FieldError(problem, field=f"job.labels.{key}")
    for key in spec.job.labels.keys() & {f"app.kubernetes.io/{word}" for word in _OWN_LABELS}:
        yield FieldError("imgtool sets this label, because Services select Pods by it", field=f"job.labels.{key}")
    yield from _scheduler_errors(spec)


def _scheduler_errors(spec: ImageSpec) -> Iterator[FieldError]:
    """Finds faults in the names of queues, priorities and topologies."""
    if spec.job.queue is not None and (message := names.subdomain(spec.job.queue) or names.label_value(spec.job.queue)):
        yield FieldError(message, field="job.queue")
    for key in ("exclusive_topology", "required_topology", "preferred_topology"):
        if (text := getattr(spec.job, key)) and (message := names.label_key(text)):
            yield FieldError(message, field=f"job.{key}")
    if spec.job.required_topology and spec.job.preferred_topology:
        yield FieldError("excludes required_topology: expected only one of the two", field="job.preferred_topology")
    for key in ("queue_priority", "required_topology", "preferred_topology"):
        if getattr(spec.job, key) and not spec.job.queue:
            yield FieldError("needs Kueue: expected job.queue too", field=f"job.{key}")
    for key in ("queue_priority", "priority_class"):
        if (text := getattr(spec.job, key)) and (message := names.subdomain(text)):
            yield FieldError(message, field=f"job.{key}")


def _name_errors(spec: ImageSpec) -> Iterator[FieldError]:
    job = spec.job
    if job.namespace is not None and (message := names.dns_label(job.namespace)):
        yield FieldError(message, field="job.namespace")
    given: dict[str, str | None] = {"job.service_account": job.service_account}
    given |= {f"job.volumes[{i}].claim": volume.claim for i, volume in enumerate(job.volumes)}
    given |= {f"job.secrets.{variable}.name": ref.name for variable, ref in job.secrets.items()}
    given |= {f"job.image_pull_secrets[{i}]": name for i, name in enumerate(job.image_pull_secrets)}
    for field, text in given.items():
        if text is not None and (message := names.subdomain(text)):
            hint = "the name of a Kubernetes ServiceAccount, not an e-mail address" if "@" in text else None
            yield FieldError(message, field=field, hint=hint)
    for variable, ref in job.secrets.items():
        if ref.name is None:
            message = "is missing: expected the name of a Secret of the namespace"
            yield FieldError(message, field=f"job.secrets.{variable}.name")
        if not _SECRET_KEY.match(ref.key or variable):
            message = f"{ref.key!r}: expected letters, digits, '-', '_' and '.'"
            yield FieldError(message, field=f"job.secrets.{variable}.key")


def _number_errors(spec: ImageSpec) -> Iterator[FieldError]:
    times = spec.job.scheduling
    for key, least in (("max_wait", 0), ("max_running", 1), ("keep_finished", 0)):
        text = getattr(times, key) if times else None
        if text is None:
            continue
        if not least <= (seconds(text) or 0) <= names.MAX_INT32:
            expected = f"expected {least}s to {names.MAX_INT32}s"
            yield FieldError(f"{text}: {expected}", field=f"job.scheduling.{key}")
    counts = {"job.scheduling.restarts": times.restarts if times else None}
    counts |= {f"roles.{role}.count": spec.roles[role].count for role in roles_of(spec)}
    for field, count in counts.items():
        if count is not None and (message := names.int32(count)):
            yield FieldError(message, field=field)


def _role_errors(spec: ImageSpec, role: Role) -> Iterator[FieldError]:
    of_role = spec.roles[role]
    yield from placement.errors(spec, role)
    for key in ("cpus", "memory"):
        text = getattr(of_role, key)
        if text is not None and not _QUANTITY.match(text):
            example = "4 or 500m" if key == "cpus" else "16Gi"
            yield FieldError(f"{text!r} is not a quantity: expected {example}", field=f"roles.{role}.{key}")
    for key, message in names.labels(of_role.node_selector):
        yield FieldError(message, field=f"roles.{role}.node_selector.{key}")
    for index, item in enumerate(of_role.tolerations):
        problem = names.toleration(item.key, item.operator, item.value, item.effect)
        if problem:
            yield FieldError(problem[1], field=f"roles.{role}.tolerations[{index}].{problem[0]}")


def job_file(
    target: Target,
    documents: tuple[Document, ...],
    spec: ImageSpec,
    images: Images,
    options: JobOptions,
    *,
    chief: Argv,
    end: Argv = (),
    notes: tuple[str, ...] = (),
) -> JobFile:
    """Makes the job file of Kubernetes objects, and the kubectl commands that submit, find and stop the job.

    Args:
        target: the target.
        documents: the objects. The job's state is the state of the last object whose kind can end.
        spec: the spec, with the job's key.
        images: the images, for the job's name.
        options: the file's name.
        chief: the arguments that select the chief's Pod for `kubectl logs`.
        end: the command that ends the Pods that outlive the chief.
        notes: notes for the user.
    """
    return JobFile(
        target=target,
        documents=documents,
        notes=notes,
        command=("kubectl", "create", "-f", options.file),
        service=_service(spec, images, options.file, len(documents), chief=chief, end=end),
    )


def _service(spec: ImageSpec, images: Images, file: str, count: int, *, chief: Argv, end: Argv) -> Service:
    """Makes the kubectl commands that find, watch and stop a job of `count` objects."""
    name = job_name(spec, images)
    here = ("--namespace", spec.job.namespace) if spec.job.namespace else ()
    selector = f"app.kubernetes.io/instance={name}"
    return Service(
        name=name,
        key=job_key(images, spec),
        find=("kubectl", "get", "--ignore-not-found", "--output", "json", "--filename", file),
        read=lambda text: _standing(text, name, count, chief),
        watch=("kubectl", "get", "pods", "--watch", "--selector", selector, *here),
        logs=("kubectl", "logs", "--follow", *chief, *here),
        stop=("kubectl", "delete", "--ignore-not-found", "--filename", file),
        end=(*end, *here) if end else (),
        replicas=("kubectl", "get", "pods", "--output", "json", "--selector", selector, *here),
        troubles=lambda text: tuple(_troubles(text)),
    )


def _troubles(text: str) -> Iterator[Trouble]:
    """Finds why Pods wait, and the exit codes of Pods that failed."""
    for pod in (pod for item in read_objects(text) for pod in item.get("items", [])):
        name = pod["metadata"]["name"]
        for each in get(pod, "status", "conditions") or []:
            if each.get("reason") == "Unschedulable":
                yield Trouble(replica=name, reason="Unschedulable", message=each.get("message"))
        for each in get(pod, "status", "containerStatuses") or []:
            waiting = get(each, "state", "waiting") or {}
            ended = get(each, "state", "terminated") or get(each, "lastState", "terminated") or {}
            if waiting or ended.get("exitCode"):
                reason = waiting.get("reason") or ended.get("reason") or "Failed"
                yield Trouble(
                    replica=name, reason=reason, message=waiting.get("message"), code=ended.get("exitCode") or None
                )


def chief_selector(spec: ImageSpec, name: str, index: str) -> Argv:
    """Makes kubectl's option that selects the chief's Pod; `index` is the label with a Pod's number."""
    role = leader(spec) or Role.MASTER
    own = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={role}"
    return ("--selector", own if role is Role.MASTER else f"{own},{index}=0")


def _standing(text: str, name: str, count: int, chief: Argv) -> Standing | None:
    found = [each for item in read_objects(text) for each in (item["items"] if item.get("kind") == "List" else [item])]
    if not found:
        return None
    keys = {key_in(get(item, "metadata", "labels")) for item in found}
    of = next(
        (item for item in found if get(item, "metadata", "name") in {*chief, name} and item["kind"] in _ENDING), {}
    )
    state = str(get(of, "status", "phase") or next(_conditions(of), "created" if of else "incomplete"))
    ended = [get(each, "state", "terminated", "exitCode") for each in get(of, "status", "containerStatuses") or []]
    return Standing(
        name=name,
        state=state,
        key=keys.pop() if len(keys) == 1 else None,
        succeeded=result_of(state, _SUCCEEDED, ("Failed",)),
        code=ended[0] if ended else None,
        cause=next((each.get("message") for each in _true(of) if each["type"] == "Failed"), None),
        whole=len(found) == count,
    )


def _conditions(item: Mapping[str, Any]) -> Iterator[str]:
    """Yields the types of the conditions that are true; those that end a job come first."""
    yield from sorted((each["type"] for each in _true(item)), key=lambda kind: kind not in {*_SUCCEEDED, "Failed"})


def _true(item: Mapping[str, Any]) -> list[Document]:
    return [each for each in get(dict(item), "status", "conditions") or [] if each.get("status") == "True"]


def is_cluster(spec: ImageSpec) -> bool:
    """Tells whether the job has more than one replica."""
    return sum(replicas(spec).values()) > 1


def own_tolerations(spec: ImageSpec, role: Role) -> list[Document]:
    """Lists the tolerations that the spec gives the role."""
    items = [plain(item) for item in spec.roles[role].tolerations]
    return [{key: item[key] for key in ("key", "operator", "value", "effect") if key in item} for item in items]
