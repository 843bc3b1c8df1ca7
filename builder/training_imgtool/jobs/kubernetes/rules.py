"""What Kubernetes and its operators refuse and kubectl's parser does not: the rules of a foreign manifest.

Source: kubeflow/training-operator v1.9 (webhook), kubernetes-sigs/jobset v0.12.0, Kubernetes' Pod rules, Alibaba
Cloud's ECI user guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.core.errors import InputError
from training_imgtool.core.reference import Digest, parse_reference
from training_imgtool.jobs.model import Finding, Path, Severity, get
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import nearest

API_VERSIONS = {
    "TFJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "ImageCache": "eci.alibabacloud.com/v1",
    "Pod": "v1",
    "Service": "v1",
}
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_OLD_ECI = {
    "k8s.aliyun.com/eci-gpu-type": "k8s.aliyun.com/eci-use-specs with an ECS type",
    "k8s.aliyun.com/eci-instance-type": "k8s.aliyun.com/eci-use-specs",
    "k8s.aliyun.com/eci-image-cache": "k8s.aliyun.com/eci-auto-imc",
    "k8s.aliyun.com/eci-image-snapshot-id": "k8s.aliyun.com/eci-imc-id",
}


def object_findings(document: Any, *, allow_unknown: bool = False) -> list[Finding]:
    """Everything wrong with one object: its kind, its keys, its names, its Pods."""
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or kind not in API_VERSIONS:
        hint = nearest(str(kind), API_VERSIONS)
        message = f"{kind!r} is not a kind that imgtool knows: expected {', '.join(API_VERSIONS)}"
        return [Finding(path=("kind",), message=message, hint=hint)]
    found = list(shape_findings(document, kind, allow_unknown=allow_unknown))
    if version != API_VERSIONS[kind]:
        found.append(Finding(path=("apiVersion",), message=f"{version!r}: expected {API_VERSIONS[kind]} for {kind}"))
    document = well_typed(document, kind) or {}
    found += _name(kind, get(document, "metadata", "name"))
    found += _OF_KIND[kind](document)
    return found


def image_findings(image: Any, path: Path) -> Iterator[Finding]:
    """Whether an image is named by digest."""
    if not isinstance(image, str):
        return
    try:
        reference = parse_reference(image)
    except InputError as error:
        yield Finding(path=path, message=error.message, hint=error.hint)
        return
    if not isinstance(reference, Digest):
        message = f"{image} is a tag, which can move: expected REPOSITORY@sha256:…"
        yield Finding(path=path, message=message, hint="imgtool config writes digests")


def _name(kind: str, name: Any) -> Iterator[Finding]:
    if not isinstance(name, str):
        return
    pattern = _DNS_LABEL if kind in {"TFJob", "JobSet", "Service"} else _DNS_NAME
    if not pattern.match(name):
        letter = ", a letter first" if pattern is _DNS_LABEL else ""
        message = f"{name!r} is not a name for a {kind}: expected a-z, 0-9 and -{letter}"
        yield Finding(path=("metadata", "name"), message=message)


def _tfjob(document: Mapping[str, Any]) -> Iterator[Finding]:
    specs, path = get(document, "spec", "tfReplicaSpecs"), ("spec", "tfReplicaSpecs")
    if not isinstance(specs, dict):
        return
    if not specs:
        yield Finding(path=path, message="is empty: expected Chief, Worker, PS or Evaluator")
    chiefs = [key for key in ("Chief", "Master") if key in specs]
    if len(chiefs) == 2:
        yield Finding(path=(*path, "Master"), message="Chief and Master mean the same: expected one of them")
    for key in chiefs:
        count = get(specs, key, "replicas")
        if isinstance(count, int) and count != 1:
            yield Finding(path=(*path, key, "replicas"), message=f"{count}: there is one {key}")
    for key, replica in specs.items():
        count = get(replica, "replicas") if isinstance(replica, dict) else None
        if isinstance(count, int) and count < 0:
            yield Finding(path=(*path, key, "replicas"), message=f"{count}: expected 0 or more")
        pod = get(replica, "template", "spec") if isinstance(replica, dict) else None
        where: Path = (*path, key, "template", "spec")
        yield from _pod(pod, where)
        containers = get(pod, "containers") if isinstance(pod, dict) else None
        if isinstance(containers, list):
            names = [get(item, "name") for item in containers if isinstance(item, dict)]
            if names.count("tensorflow") != 1:
                message = f"{', '.join(map(str, names)) or 'no container'}: one must be called tensorflow"
                yield Finding(path=(*where, "containers"), message=message)


def _jobset(document: Mapping[str, Any]) -> Iterator[Finding]:
    jobs, path = get(document, "spec", "replicatedJobs"), ("spec", "replicatedJobs")
    set_name = get(document, "metadata", "name")
    if not isinstance(jobs, list):
        return
    names = [get(job, "name") for job in jobs if isinstance(job, dict)]
    for index, job in enumerate(jobs):
        if not isinstance(job, dict):
            continue
        here: Path = (*path, index)
        name = job.get("name")
        if name in names[:index]:
            yield Finding(path=(*here, "name"), message=f"{name!r} is there twice")
        if isinstance(name, str) and not _DNS_LABEL.match(name):
            yield Finding(path=(*here, "name"), message=f"{name!r}: expected a-z, 0-9 and -, a letter first")
        spec = get(job, "template", "spec")
        pod = get(spec, "template", "spec") if isinstance(spec, dict) else None
        where: Path = (*here, "template", "spec", "template", "spec")
        yield from _pod(pod, where)
        if isinstance(pod, dict) and pod.get("restartPolicy") not in {"Never", "OnFailure"}:
            seen = repr(pod["restartPolicy"]) if "restartPolicy" in pod else "is missing"
            yield Finding(path=(*where, "restartPolicy"), message=f"{seen}: a Job takes Never or OnFailure")
        longest = f"{set_name}-{name}-{_last(job.get('replicas'))}-{_last(get(spec, 'completions') if spec else 1)}"
        if len(longest) > 63:
            yield Finding(path=(*here, "name"), message=f"the Pod {longest!r} would have more than 63 characters")
    targets = get(document, "spec", "successPolicy", "targetReplicatedJobs")
    for index, target in enumerate(targets if isinstance(targets, list) else []):
        if target not in names:
            where = ("spec", "successPolicy", "targetReplicatedJobs", index)
            yield Finding(path=where, message=f"{target!r} is none of {', '.join(map(str, names))}")


def _last(count: Any) -> int:
    return count - 1 if isinstance(count, int) and count > 0 else 0


def _pod_object(document: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _pod(document.get("spec"), ("spec",))
    annotations = get(document, "metadata", "annotations")
    if isinstance(annotations, dict):
        yield from _eci_annotations(annotations, ("metadata", "annotations"))


def _pod(pod: Any, path: Path) -> Iterator[Finding]:
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list):
        return
    if not containers:
        yield Finding(path=(*path, "containers"), message="is empty: expected a container")
    volumes = {get(item, "name") for item in pod.get("volumes") or [] if isinstance(item, dict)}
    for index, running in enumerate(containers):
        if not isinstance(running, dict):
            continue
        here: Path = (*path, "containers", index)
        yield from image_findings(running.get("image"), (*here, "image"))
        yield from _resources(running.get("resources"), (*here, "resources"))
        yield from _env(running.get("env"), (*here, "env"))
        mounts = running.get("volumeMounts")
        for number, mount in enumerate(mounts if isinstance(mounts, list) else []):
            name = get(mount, "name") if isinstance(mount, dict) else None
            if name is not None and name not in volumes:
                where = (*here, "volumeMounts", number, "name")
                yield Finding(path=where, message=f"{name!r} is not among the Pod's volumes")


def _resources(resources: Any, path: Path) -> Iterator[Finding]:
    limits = get(resources, "limits") if isinstance(resources, dict) else None
    requests = get(resources, "requests") if isinstance(resources, dict) else None
    limit = limits.get("nvidia.com/gpu") if isinstance(limits, dict) else None
    request = requests.get("nvidia.com/gpu") if isinstance(requests, dict) else None
    if request is not None and str(request) != str(limit):
        where = (*path, "requests", "nvidia.com/gpu")
        yield Finding(path=where, message=f"{request}: a GPU is asked for as a limit; a request must equal it")
    if limit is not None and not re.fullmatch(r"[0-9]+", str(limit)):
        message = f"{limit}: GPUs are whole: expected a number such as 1"
        yield Finding(path=(*path, "limits", "nvidia.com/gpu"), message=message)


def _env(env: Any, path: Path) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, item in enumerate(env if isinstance(env, list) else []):
        name = get(item, "name") if isinstance(item, dict) else None
        if isinstance(name, str) and name in seen:
            yield Finding(path=(*path, index, "name"), message=f"{name!r} is there twice: the last one counts")
        seen.add(str(name))


def _eci_annotations(annotations: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for key, now in _OLD_ECI.items():
        if key in annotations:
            message = f"is not in today's documentation: it is {now} now"
            yield Finding(path=(*path, key), message=message, severity=Severity.WARNING)
    specs = annotations.get("k8s.aliyun.com/eci-use-specs")
    if isinstance(specs, str) and len(specs.split(",")) > 5:
        where = (*path, "k8s.aliyun.com/eci-use-specs")
        yield Finding(path=where, message=f"{len(specs.split(','))} types: expected 5 at most")
    driver = annotations.get("k8s.aliyun.com/eci-gpu-driver-version")
    if isinstance(driver, str) and not re.fullmatch(r"tesla=[0-9]+", driver):
        where = (*path, "k8s.aliyun.com/eci-gpu-driver-version")
        yield Finding(path=where, message=f"{driver!r}: expected tesla=MAJOR, such as tesla=535")


def _image_cache(document: Mapping[str, Any]) -> Iterator[Finding]:
    if get(document, "metadata", "namespace") is not None:
        yield Finding(path=("metadata", "namespace"), message="an ImageCache belongs to the cluster, to no namespace")
    images = get(document, "spec", "images")
    if isinstance(images, list) and not images:
        yield Finding(path=("spec", "images"), message="is empty: expected at least one image")
    for index, image in enumerate(images if isinstance(images, list) else []):
        yield from image_findings(image, ("spec", "images", index))
    for key, low, high in (("imageCacheSize", 20, 32768), ("retentionDays", 1, 65536)):
        value = get(document, "spec", key)
        if isinstance(value, int) and not low <= value <= high:
            yield Finding(path=("spec", key), message=f"{value}: expected {low} to {high}")


def _service(_document: Mapping[str, Any]) -> Iterator[Finding]:
    return iter(())


_OF_KIND = {
    "TFJob": _tfjob,
    "JobSet": _jobset,
    "ImageCache": _image_cache,
    "Pod": _pod_object,
    "Service": _service,
}
