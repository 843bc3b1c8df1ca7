"""Alibaba Cloud Serverless Kubernetes: Pods on Elastic Container Instances, and an ImageCache for their images.

imgtool writes the annotations of the current documentation. A role with a GPU but no ECS type gets `eci-gpu-type`,
which only an older page describes, and a warning.
Source: Alibaba Cloud's ECI user guide (Pod annotations, image caches, GPU specifications).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.kubernetes import errors, job_name, labels, own_tolerations
from training_imgtool.jobs.model import (
    Document,
    Finding,
    Images,
    JobFile,
    JobOptions,
    Path,
    Severity,
    get,
    image_of,
    replicas,
    without_none,
)
from training_imgtool.jobs.targets.pods import longest_suffix, pods_file
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.model.job import Eci
from training_imgtool.model.spec import ImageSpec, Role
from training_imgtool.model.targets import Target

_TOLERATION = {
    "key": "virtual-kubelet.io/provider",
    "operator": "Equal",
    "value": "alibabacloud",
    "effect": "NoSchedule",
}
_OLD_ECI = {
    "k8s.aliyun.com/eci-gpu-type": "k8s.aliyun.com/eci-use-specs with an ECS type",
    "k8s.aliyun.com/eci-instance-type": "k8s.aliyun.com/eci-use-specs",
    "k8s.aliyun.com/eci-image-cache": "k8s.aliyun.com/eci-auto-imc",
    "k8s.aliyun.com/eci-image-snapshot-id": "k8s.aliyun.com/eci-imc-id",
}
_DEFAULT = Eci()


def check(spec: ImageSpec, images: Images, options: JobOptions) -> list[FieldError]:
    """Finds every reason why the spec cannot be ECI Pods."""
    return [
        *errors(spec, images, suffix=longest_suffix(spec)),
        *(error for role in replicas(spec) for error in _machine_errors(spec, role, options)),
    ]


def make(spec: ImageSpec, images: Images, options: JobOptions) -> JobFile:
    """Makes the ImageCache, Services and Pods of a spec in which `check` found no error."""
    eci = spec.job.eci or _DEFAULT
    cache = [_image_cache(spec, images, eci)] if eci.image_cache == "create" else []

    def change(pod: Document, role: Role) -> Document:
        own = {"nodeSelector": dict(spec.roles[role].node_selector), "tolerations": own_tolerations(spec, role)}
        pod = {**pod, "spec": without_none({**pod["spec"], **own})}  # ECI's virtual nodes have no device labels
        return _on_eci(pod, eci, _annotations(spec, role, eci, options.cuda.get(role)))

    notes = [note for role in replicas(spec) for note in _driver_notes(spec, role, eci, options.cuda.get(role))]
    notes += _cache_note(spec, images, eci)
    return pods_file(Target.ECI, spec, images, options, change, before=tuple(cache), notes=tuple(notes))


def _cache_note(spec: ImageSpec, images: Images, eci: Eci) -> list[str]:
    if eci.image_cache != "create":
        return []
    name = job_name(spec, images)
    return [f"note: Pods use the image cache once kubectl get imagecache {name} shows Ready; until then, they pull"]


def _image_cache(spec: ImageSpec, images: Images, eci: Eci) -> Document:
    name = job_name(spec, images)
    namespace = spec.job.namespace or "default"
    return {
        "apiVersion": "eci.alibabacloud.com/v1",
        "kind": "ImageCache",
        "metadata": {"name": name, "labels": labels(spec, name)},  # the kind has no namespace
        "spec": without_none(
            {
                "images": list(dict.fromkeys(image_of(images, role) for role in replicas(spec))),
                "imagePullSecrets": [f"{namespace}:{secret}" for secret in spec.job.image_pull_secrets],
                "imageCacheSize": eci.cache_size_gb,
                "retentionDays": eci.retention_days,
            }
        ),
    }


def _annotations(spec: ImageSpec, role: Role, eci: Eci, cuda: str | None) -> Document:
    of_role = spec.roles[role]
    driver = _driver(of_role.machine, eci, cuda) if of_role.gpus else None
    named = eci.image_cache.startswith("imc-")
    return without_none(
        {
            "k8s.aliyun.com/eci-use-specs": of_role.machine,
            "k8s.aliyun.com/eci-gpu-type": of_role.gpus.type
            if of_role.gpus and of_role.gpus.type != "any" and not of_role.machine
            else None,
            "k8s.aliyun.com/eci-gpu-driver-version": f"tesla={driver}" if driver else None,
            "k8s.aliyun.com/eci-imc-id": eci.image_cache if named else None,
            "k8s.aliyun.com/eci-auto-imc": None if named else "false" if eci.image_cache == "none" else "true",
        }
    )


def _on_eci(pod: Document, eci: Eci, annotations: Document) -> Document:
    labels_of = pod["metadata"]["labels"]
    if eci.virtual_node == "label":
        labels_of = {**labels_of, "alibabacloud.com/eci": "true"}
    inner: Document = pod["spec"]
    if eci.virtual_node == "toleration":
        inner = {**inner, "tolerations": [*inner.get("tolerations", []), dict(_TOLERATION)]}
    metadata = pod["metadata"]
    noted = {**metadata.get("annotations", {}), **annotations}
    return {**pod, "metadata": {**metadata, "labels": labels_of, "annotations": noted}, "spec": inner}


def _find_family(machine: str | None) -> Mapping[str, Any] | None:
    families = read_table("machines/eci.yaml")["families"]
    return next((row for prefix, row in families.items() if machine and machine.startswith(prefix)), None)


def _driver(machine: str | None, eci: Eci, cuda: str | None) -> str | None:
    """Chooses the driver: the spec's; or, if the default cannot run the image's CUDA, the first that can."""
    family = _find_family(machine)
    if eci.driver or not (cuda and family) or _runs(family["default"], cuda):
        return eci.driver
    return next((driver for driver in family["drivers"] if _runs(driver, cuda)), None)


def _runs(driver: str, cuda: str) -> bool:
    """Tells whether a driver runs a CUDA version: the major version must not be above the driver's."""
    has = read_table("machines/eci.yaml")["drivers"].get(driver)
    return has is None or int(cuda.partition(".")[0]) <= int(has.partition(".")[0])


def _driver_notes(spec: ImageSpec, role: Role, eci: Eci, cuda: str | None) -> Iterator[str]:
    of_role = spec.roles[role]
    family = _find_family(of_role.machine)
    if of_role.gpus and of_role.gpus.type != "any" and not of_role.machine:
        yield (
            f"warning: roles.{role}: the annotation eci-gpu-type: {of_role.gpus.type} is not in today's documentation; "
            f"roles.{role}.machine names ECS types instead, such as ecs.gn6i-c4g1.xlarge"
        )
    if not of_role.gpus or not cuda or family is None:
        return
    driver = _driver(of_role.machine, eci, cuda) or family["default"]
    if not _runs(driver, cuda):
        has = read_table("machines/eci.yaml")["drivers"][driver]
        yield f"warning: roles.{role}: the image has CUDA {cuda}, ECI's driver {driver} runs CUDA {has}"


def _machine_errors(spec: ImageSpec, role: Role, options: JobOptions) -> Iterator[FieldError]:
    of_role = spec.roles[role]
    field = f"roles.{role}.machine"
    if of_role.machine is None:
        return
    types = [part.strip() for part in of_role.machine.split(",")]
    if len(types) > 5:
        yield FieldError(f"{len(types)} ECS types: expected 5 at most", field=field)
    for name in types:
        if not name.startswith("ecs.") and not (not of_role.gpus and _is_size(name)):
            yield FieldError(
                f"{name!r} is not an ECS type", field=field, hint="for example ecs.gn6i-c4g1.xlarge, or 4-8Gi"
            )
    with_gpu = [name for name in types if name.startswith(("ecs.gn", "ecs.vgn", "ecs.sgn", "ecs.ebmgn"))]
    if with_gpu and len(with_gpu) != len(types):
        yield FieldError(f"{of_role.machine!r} mixes ECS types with and without GPUs", field=field)
    elif of_role.gpus and not with_gpu and not options.allow_unknown:
        message = f"{of_role.machine!r} has no GPU, but {role} needs {of_role.gpus.count}"
        yield FieldError(message, field=field, hint="for example ecs.gn6i-c4g1.xlarge")
    driver = (spec.job.eci or _DEFAULT).driver
    family = _find_family(of_role.machine)
    if of_role.gpus and driver and family and driver not in family["drivers"] and not options.allow_unknown:
        message = f"{driver!r} is not a driver of {types[0]}: expected {', '.join(family['drivers'])}"
        yield FieldError(message, field="job.eci.driver")


def _is_size(text: str) -> bool:
    """Tells whether the text gives CPUs and memory, such as `4-8Gi`, and not an ECS type."""
    cpus, _, memory = text.partition("-")
    return cpus.isdecimal() and memory.endswith("Gi") and memory[:-2].isdecimal()


def judge(document: Any, *, allow_unknown: bool, region: str | None) -> Iterator[Finding]:  # noqa: ARG001  one signature
    """Finds faults in an ImageCache, or in a Pod with annotations of ECI."""
    if document.get("kind") == "ImageCache":
        yield from _image_cache_findings(document)
        return
    annotations = get(document, "metadata", "annotations")
    if isinstance(annotations, dict):
        yield from _annotation_findings(annotations, ("metadata", "annotations"))


def _annotation_findings(annotations: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for key, now in _OLD_ECI.items():
        if key in annotations:
            message = f"is not in today's documentation: use {now}"
            yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)
    specs = annotations.get("k8s.aliyun.com/eci-use-specs")
    if isinstance(specs, str) and len(specs.split(",")) > 5:
        where = (*path, "k8s.aliyun.com/eci-use-specs")
        yield Finding(path=where, message=f"{len(specs.split(','))} types: expected 5 at most")
    driver = annotations.get("k8s.aliyun.com/eci-gpu-driver-version")
    if isinstance(driver, str) and not re.fullmatch(r"tesla=[0-9]+", driver):
        where = (*path, "k8s.aliyun.com/eci-gpu-driver-version")
        yield Finding(path=where, message=f"{driver!r}: expected tesla=MAJOR, such as tesla=535")


def _image_cache_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    if get(document, "metadata", "namespace") is not None:
        yield Finding(path=("metadata", "namespace"), message="an ImageCache has no namespace")
    if get(document, "spec", "images") == []:
        yield Finding(path=("spec", "images"), message="is empty: expected at least one image")
