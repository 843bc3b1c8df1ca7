"""SkyPilot: a task with one role, because all nodes of a task are alike. TF_CONFIG comes from SKYPILOT_NODE_IPS.

SkyPilot ignores the image's entry point, so the task contains the trainer's whole command.
Source: SkyPilot 0.10's task schema (sky/utils/schemas.py) and its page on distributed tasks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs import launcher
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    Severity,
    args_with_job_dir,
    image_of,
    job_key,
    leader,
    passed_job_dir,
    replicas,
    reserved_errors,
    results_folder,
    size_errors,
    without_none,
)
from training_imgtool.jobs.rules.images import image_findings
from training_imgtool.jobs.rules.schemas import published_findings
from training_imgtool.jobs.service import JOB, Service, Standing, latest, read_objects, result_of
from training_imgtool.jobs.tables import nearest
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_SKYPILOT = "SkyPilot 0.14's task schema"
_TIERS = {"disk_tier": ("low", "medium", "high", "ultra", "best"), "network_tier": ("standard", "best")}
_VALUES = {  # sky/resources.py: the text of each value, and what it is
    "cpus": (r"(?=.*[1-9])[0-9]*\.?[0-9]*\+?", "a number such as 4 or 4+"),
    "memory": (r"(?=.*[1-9])[0-9]*\.?[0-9]*(?i:[kmgtp]?[bi]?)[+x]?", "a size in GB such as 16, 16+ or 16GB"),
    "accelerators": (r"[^:]+(?::(?=.*[1-9])[0-9.]+)?|(?:[^:]+:)?[0-9]+[GMT]B\+?(?::[0-9]+)?", "NAME or NAME:COUNT"),
    "ports": (r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,.*)?", "a port or a range such as 8080-8090"),
}
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._-]{1,2}[A-Za-z0-9]+)*\Z")
_CPUS = re.compile(r"[0-9]+(?:\.[0-9]+)?\Z")
_MEMORY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>Mi|Gi|Ti|M|G|T)?\Z")
_GIB = {"Mi": 1 / 1024, "M": 1 / 1024, "Gi": 1, "G": 1, "Ti": 1024, "T": 1024, None: 1 / 2**30}
_GPUS = {  # Google's names, and SkyPilot's
    "NVIDIA_A100_80GB": "A100-80GB",
    "NVIDIA_H100_80GB": "H100",
    "NVIDIA_H100_MEGA_80GB": "H100-MEGA",
    "NVIDIA_H200_141GB": "H200",
}


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:  # noqa: ARG001  one signature
    """Finds every reason why the spec cannot be a SkyPilot task."""
    return list(_errors(spec, _name(spec, images)))


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the task of a spec in which `check` found no error."""
    role = _role(spec)
    count, name = replicas(spec)[role], _name(spec, images)
    program = [shlex.quote(word) for word in (*launcher.trainer_command(spec, role), *_arguments(spec, role))]
    cluster = launcher.variables(spec) if count > 1 else {}
    run = launcher.format_launch(program, "SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK") if cluster else " ".join(program)
    document: Document = without_none(
        {
            "name": name,
            "resources": _resources(spec, images, role),
            "num_nodes": count,
            "envs": {**spec.job.env, **cluster},
            "secrets": dict.fromkeys(spec.job.secrets),  # the submitter's environment has the values
            "file_mounts": {v.mount: {"source": v.bucket, "mode": "MOUNT"} for v in spec.job.volumes if v.bucket},
            "volumes": {volume.mount: volume.claim for volume in spec.job.volumes if volume.claim},
            "run": f"exec {run}\n",
        }
    )
    secrets = (word for variable in spec.job.secrets for word in ("--secret", variable))
    notes = () if count == 1 else ("note: SkyPilot stops the job when a node fails; it ends when all nodes have ended",)
    return JobFile(
        target=Target.SKYPILOT,
        documents=(document,),
        notes=notes,
        command=("sky", "jobs", "launch", "--yes", "--detach-run", "--name", name, *secrets, options.file),
        header=("The image needs what SkyPilot installs with: a Debian system, root, and the network.",),
        service=_service(name, job_key(images, spec)),
    )


def _service(name: str, key: str) -> Service:
    return Service(
        name=name,
        key=key,
        find=("sky", "jobs", "queue", "--all", "--output", "json"),
        read=lambda text: _standing(text, name, key),
        none="No in-progress managed jobs",
        watch=("sky", "jobs", "queue"),
        logs=("sky", "jobs", "logs", JOB),
        stop=("sky", "jobs", "cancel", "--yes", JOB),
    )


def _standing(text: str, name: str, key: str) -> Standing | None:
    """Finds the job in SkyPilot's queue by the key at the end of the job's name."""
    failed = ("FAILED", "CANCELLED")
    found = [
        Standing(
            name=str(row["job_id"]),
            state=str(row["status"]),
            key=key,
            succeeded=result_of(str(row["status"]).partition("_")[0], ("SUCCEEDED",), failed),
            cause=row.get("failure_reason"),
        )
        for row in read_objects(text)
        if row.get("job_name") == name
    ]
    return latest(found, key)


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:  # noqa: ARG001  one signature
    """Finds what SkyPilot's schema refuses. Like SkyPilot, first drops empty keys and turns variables into text."""
    task = _given(document)
    for key in ("envs", "secrets"):
        if isinstance(task.get(key), dict):
            task[key] = {name: None if value is None else str(value) for name, value in task[key].items()}
    if isinstance(nodes := task.get("num_nodes"), int) and nodes < 1:
        yield Finding(path=("num_nodes",), message=f"{nodes}: expected 1 or more", source=_SKYPILOT)
    resources = task.get("resources")
    if isinstance(resources, dict):
        task["resources"] = _given(resources)
        yield from _resource_findings(task["resources"], ("resources",))
        for key in ("any_of", "ordered"):
            others = resources.get(key)
            for index, other in enumerate(others if isinstance(others, list) else []):
                yield from _resource_findings(_given(other), ("resources", key, index))
    if isinstance(mounts := task.get("file_mounts"), dict):
        task["file_mounts"] = {path: _given(mount) for path, mount in mounts.items()}
    yield from published_findings(task, "skypilot", _SKYPILOT)


def _resource_findings(resources: Any, path: Path) -> Iterator[Finding]:
    """Finds values that the schema allows and SkyPilot's parser refuses."""
    given = resources if isinstance(resources, dict) else {}
    for key, item in ((key, given[key]) for key in _VALUES if key in given):
        pattern, words = _VALUES[key]
        for value in item if isinstance(item, list) else [item]:
            if isinstance(value, str | int | float) and not re.fullmatch(pattern, str(value), re.IGNORECASE):
                yield Finding(path=(*path, key), message=f"{value!r}: expected {words}", source=_SKYPILOT)
    image = given.get("image_id")
    kind, _, name = image.partition(":") if isinstance(image, str) else ("", "", "")
    if kind == "docker":
        yield from image_findings(name, (*path, "image_id"))
    elif name and nearest(kind, ["docker"]):
        message = f"{image!r}: expected docker:IMAGE"
        yield Finding(path=(*path, "image_id"), message=message, severity=Severity.WARNING)
    for key, tiers in _TIERS.items():
        if isinstance(value := given.get(key), str) and value.lower() not in tiers:
            yield Finding(path=(*path, key), message=f"{value!r}: expected {', '.join(tiers)}", source=_SKYPILOT)


def _given(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def _role(spec: ImageSpec) -> Role:
    return leader(spec) or Role.MASTER


def _name(spec: ImageSpec, images: Images) -> str:
    return f"{spec.job.id or spec.name}-{job_key(images, spec)}"  # the queue shows no labels


def _arguments(spec: ImageSpec, role: Role) -> list[str]:
    return args_with_job_dir(spec, role, passed_job_dir(spec, spec.job.job_dir or results_folder(spec)))


def _resources(spec: ImageSpec, images: Images, role: Role) -> Document:
    of_role = spec.roles[role]
    gpus, disk, times = of_role.gpus, of_role.disk, spec.job.scheduling
    return without_none(
        {
            "infra": spec.job.infra,
            "instance_type": of_role.machine,
            "cpus": of_role.cpus,
            "memory": _gib(of_role.memory),
            "accelerators": f"{_gpu_name(gpus.type)}:{gpus.count}" if gpus else None,
            "disk_size": disk.size_gb if disk else None,
            "use_spot": True if times and times.strategy == "SPOT" else None,
            "image_id": f"docker:{image_of(images, role)}",
            "labels": dict(spec.job.labels),
        }
    )


def _gpu_name(text: str) -> str:
    name = text.upper().replace("-", "_")  # GKE's labels have nvidia-tesla-t4
    known = name.startswith(("NVIDIA_", "TESLA_"))
    return _GPUS.get(name) or (name.removeprefix("NVIDIA_").removeprefix("TESLA_") if known else text)


def _gib(text: str | None) -> str | None:
    match = _MEMORY.match(text or "")
    return f"{float(match['number']) * _GIB[match['unit']]:g}" if match else None


def _errors(spec: ImageSpec, name: str) -> Iterator[FieldError]:
    if not _NAME.match(name):
        message = f"{name!r} is not a task's name: expected letters and digits, joined by '.', '_' or '-'"
        yield FieldError(message, field="job.id")
    first = _role(spec)
    for role in replicas(spec):
        if role is not first:
            message = f"a SkyPilot task's nodes are all alike: expected one role, found {first} and {role}"
            hint = "use only workers (worker 0 is the chief), or another target"
            yield FieldError(message, field=f"roles.{role}", hint=hint)
    yield from size_errors(spec, _CPUS, _MEMORY, examples=("4", "16Gi"))
    yield from reserved_errors(spec, launcher.VARIABLE)
    for index, volume in enumerate(spec.job.volumes):
        if volume.bucket and "/" in volume.bucket.removeprefix("gs://"):
            bucket = "/".join(volume.bucket.split("/")[:3])
            message = f"{volume.bucket}: SkyPilot mounts a whole bucket: expected {bucket}"
            yield FieldError(message, field=f"job.volumes[{index}].bucket")
