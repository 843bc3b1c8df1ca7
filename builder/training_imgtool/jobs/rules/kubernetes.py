"""What Kubernetes refuses in any object and in a Pod, wherever its template stands, and kubectl's parser does not.

Source: kubernetes/kubernetes pkg/apis/core/validation (1.34) and the list-map keys of the CRDs' Pod templates.
Values that a webhook sets are not missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity, add_source, get
from training_imgtool.jobs.rules import names
from training_imgtool.jobs.rules.images import image_findings
from training_imgtool.jobs.shapes import shape_findings, well_typed
from training_imgtool.jobs.tables import nearest
from training_imgtool.spec.targets import Target

KINDS = {kind: target for target in Target for kind in target.row.kinds}
Judge = Callable[..., Iterable[Finding]]


def object_findings(document: Any, judge: Judge, target: Target, *, allow_unknown: bool) -> list[Finding]:
    """Finds what is wrong with one object: its keys, its names, and what `judge` says of the rest."""
    kind, version = document["kind"], document.get("apiVersion")
    findings = list(shape_findings(document, kind, allow_unknown=allow_unknown))
    expected = KINDS[kind].row.kinds[kind]
    if version != expected:
        findings.append(Finding(path=("apiVersion",), message=f"{version!r}: expected {expected} for {kind}"))
    document = well_typed(document, kind) or {}
    findings += _metadata(kind, document.get("metadata"))
    findings += judge(document, allow_unknown=allow_unknown, region=None)
    return list(add_source(findings, target.row.rules))


def unknown_kind(kind: Any, version: Any) -> Finding:
    """Tells what a kind that no target has was meant to be, or that nobody checks it."""
    meant = nearest(str(kind), [name for name, target in KINDS.items() if target.row.kinds[name] == version])
    if meant or not isinstance(kind, str):
        message = f"{kind!r} is not a kind that imgtool knows: expected {', '.join(KINDS)}"
        return Finding(path=("kind",), message=message, hint=meant, source=str(version))
    return Finding(path=("kind",), message=f"imgtool does not check the kind {kind}", severity=Severity.HINT)


def _metadata(kind: str, metadata: Any) -> Iterator[Finding]:
    yield from metadata_findings(metadata, ("metadata",))
    if not isinstance(metadata, dict):
        return
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        yield Finding(path=("metadata", "name"), message="is missing: an object has name or generateName")
    if not isinstance(name, str) or not name:
        return
    strict = kind in {"TFJob", "JobSet", "Service"}
    message = names.dns_label(name, letter_first=True) if strict else names.subdomain(name)
    if message and not (kind == "JobSet" and len(name) > names.LABEL_LENGTH):  # whose jobs' names are too long first
        yield Finding(path=("metadata", "name"), message=message)


def metadata_findings(metadata: Any, path: Path) -> Iterator[Finding]:
    """Labels, annotations and the namespace of any object or Pod template."""
    if not isinstance(metadata, dict):
        return
    labels, annotations, namespace = (metadata.get(key) for key in ("labels", "annotations", "namespace"))
    for key, message in names.labels(labels if isinstance(labels, dict) else {}):
        yield Finding(path=(*path, "labels", key), message=message)
    for key in annotations if isinstance(annotations, dict) else ():
        if problem := names.label_key(key.lower()):
            yield Finding(path=(*path, "annotations", key), message=problem.replace("label", "annotation"))
    if isinstance(namespace, str) and (problem := names.dns_label(namespace)):
        yield Finding(path=(*path, "namespace"), message=problem)


def template_findings(template: Any, path: Path, volumes: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Everything wrong with a Pod template; `volumes` are those that its owner adds."""
    if isinstance(template, dict):
        yield from metadata_findings(template.get("metadata"), (*path, "metadata"))
        yield from pod_findings(template.get("spec"), (*path, "spec"), volumes)


def pod_findings(
    pod: Any, path: Path, volumes: frozenset[str] = frozenset(), *, lone: bool = False
) -> Iterator[Finding]:
    """Everything wrong with a PodSpec; in a `lone` Pod the API server lets a variable stand twice."""
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list):
        return
    if not containers:
        yield Finding(path=(*path, "containers"), message="is empty: expected a container")
    yield from _pod_names(pod, path)
    volume_names = volumes | {get(item, "name") for item in pod.get("volumes") or [] if isinstance(item, dict)}
    seen: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, running in enumerate(pod.get(key) or []):
            if isinstance(running, dict):
                here: Path = (*path, key, index)
                yield from _container(running, here, volume_names, lone=lone)
                name = running.get("name")
                if isinstance(name, str) and name in seen:
                    yield Finding(path=(*here, "name"), message=f"{name!r} appears twice")
                seen.add(str(name))


def _pod_names(pod: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for key in ("hostname", "subdomain"):
        text = pod.get(key)
        if isinstance(text, str) and text and (message := names.dns_label(text)):
            yield Finding(path=(*path, key), message=message)
    selector = pod.get("nodeSelector")
    for key, message in names.labels(selector if isinstance(selector, dict) else {}):
        yield Finding(path=(*path, "nodeSelector", key), message=message)
    tolerations = pod.get("tolerations")
    for index, item in enumerate(tolerations if isinstance(tolerations, list) else []):
        if isinstance(item, dict):
            parts = (item.get(key) for key in ("key", "operator", "value", "effect"))
            if problem := names.toleration(*parts):
                yield Finding(path=(*path, "tolerations", index, problem[0]), message=problem[1])
    for index, volume in enumerate(pod.get("volumes") or []):
        name = get(volume, "name") if isinstance(volume, dict) else None
        if isinstance(name, str) and (message := names.dns_label(name)):
            yield Finding(path=(*path, "volumes", index, "name"), message=message)


def _container(
    running: Mapping[str, Any], path: Path, volumes: set[Any] | frozenset[Any], *, lone: bool
) -> Iterator[Finding]:
    name = running.get("name")
    if isinstance(name, str) and (message := names.dns_label(name)):
        yield Finding(path=(*path, "name"), message=message)
    yield from image_findings(running.get("image"), (*path, "image"))
    yield from _resources(running.get("resources"), (*path, "resources"))
    yield from _env(running.get("env"), (*path, "env"), lone=lone)
    ports = running.get("ports")
    for index, port in enumerate(ports if isinstance(ports, list) else []):
        if isinstance(port, dict):
            yield from _port(port, (*path, "ports", index))
    mounts = running.get("volumeMounts")
    for index, mount in enumerate(mounts if isinstance(mounts, list) else []):
        volume = get(mount, "name") if isinstance(mount, dict) else None
        if volume is not None and volume not in volumes:
            message = f"{volume!r} is not among the Pod's volumes"
            yield Finding(path=(*path, "volumeMounts", index, "name"), message=message)


def _port(port: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    name, number = port.get("name"), port.get("containerPort")
    if isinstance(name, str) and (message := names.port_name(name)):
        yield Finding(path=(*path, "name"), message=message)
    if isinstance(number, int) and not 1 <= number <= 65535:
        yield Finding(path=(*path, "containerPort"), message=f"{number}: expected 1 to 65535")


def _resources(resources: Any, path: Path) -> Iterator[Finding]:
    limits = get(resources, "limits") if isinstance(resources, dict) else None
    requests = get(resources, "requests") if isinstance(resources, dict) else None
    limit = limits.get("nvidia.com/gpu") if isinstance(limits, dict) else None
    request = requests.get("nvidia.com/gpu") if isinstance(requests, dict) else None
    if request is not None and str(request) != str(limit):
        where = (*path, "requests", "nvidia.com/gpu")
        yield Finding(path=where, message=f"{request}: a GPU is a limit; a request must equal it")
    if limit is not None and not re.fullmatch(r"[0-9]+(?:\.0+)?k?", str(limit)):
        message = f"{limit}: GPUs are whole: expected a number such as 1"
        yield Finding(path=(*path, "limits", "nvidia.com/gpu"), message=message)


def _env(env: Any, path: Path, *, lone: bool) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, item in enumerate(env if isinstance(env, list) else []):
        name = get(item, "name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            continue
        if message := names.env_name(name):
            yield Finding(path=(*path, index, "name"), message=message)
        if name in seen:
            severity = Severity.WARNING if lone else Severity.ERROR
            message = f"{name!r} appears twice: the last one counts"
            yield Finding(path=(*path, index, "name"), message=message, severity=severity)
        seen.add(name)
