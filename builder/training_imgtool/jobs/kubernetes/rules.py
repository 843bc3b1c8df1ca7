"""What Kubernetes and its operators refuse and kubectl's parser does not: the rules of a foreign manifest.

Source: kubeflow/training-operator v1.9.0 (webhook and defaults), the CRDs of TFJob v1.9.4 and JobSet v0.12.0,
Kubernetes' validation code, Alibaba Cloud's ECI user guide. Values that a webhook sets are not missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.images.names import image_findings
from training_imgtool.jobs.kubernetes import names
from training_imgtool.jobs.kubernetes.jobset_rules import jobset_findings
from training_imgtool.jobs.kubernetes.pod_rules import (
    metadata_findings,
    pod_findings,
    template_findings,
)
from training_imgtool.jobs.model import Finding, Path, Severity, add_source, get
from training_imgtool.jobs.shapes import shape_findings, shape_keys, well_typed
from training_imgtool.jobs.tables import nearest

API_VERSIONS = {
    "TFJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "ImageCache": "eci.alibabacloud.com/v1",
    "Pod": "v1",
    "Service": "v1",
}
_SOURCES = {
    "TFJob": "TFJob v1.9 CRD and webhook",
    "JobSet": "JobSet v0.12 CRD and webhook",
    "ImageCache": "Alibaba Cloud ECI user guide",
    "Pod": "Kubernetes API",
    "Service": "Kubernetes API",
}
_OLD_ECI = {
    "k8s.aliyun.com/eci-gpu-type": "k8s.aliyun.com/eci-use-specs with an ECS type",
    "k8s.aliyun.com/eci-instance-type": "k8s.aliyun.com/eci-use-specs",
    "k8s.aliyun.com/eci-image-cache": "k8s.aliyun.com/eci-auto-imc",
    "k8s.aliyun.com/eci-image-snapshot-id": "k8s.aliyun.com/eci-imc-id",
}
_MANAGERS = ("", "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")


def object_findings(document: Any, *, allow_unknown: bool = False) -> list[Finding]:
    """Everything wrong with one object: its kind, its keys, its names, its Pods. Other kinds get a hint."""
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or kind not in API_VERSIONS:
        return [_other_kind(kind, version)]
    document, renamed = _spelt(document) if kind == "TFJob" else (document, {})
    findings = list(shape_findings(document, kind, allow_unknown=allow_unknown))
    if version != API_VERSIONS[kind]:
        findings.append(Finding(path=("apiVersion",), message=f"{version!r}: expected {API_VERSIONS[kind]} for {kind}"))
    document = well_typed(document, kind) or {}
    findings += _metadata(kind, document.get("metadata"))
    findings += _OF_KIND[kind](document)
    findings = [_as_written(item, renamed) for item in findings]
    for new, old in renamed.items():
        message = f"the operator reads it as {new}"
        path = ("spec", "tfReplicaSpecs", old)
        findings.append(Finding(path=path, message=message, severity=Severity.WARNING))
    return list(add_source(findings, _SOURCES[kind]))


def _other_kind(kind: Any, version: Any) -> Finding:
    meant = nearest(str(kind), [name for name, group in API_VERSIONS.items() if group == version])
    if meant or not isinstance(kind, str):
        message = f"{kind!r} is not a kind that imgtool knows: expected {', '.join(API_VERSIONS)}"
        return Finding(path=("kind",), message=message, hint=meant, source=str(version))
    return Finding(path=("kind",), message=f"imgtool does not check the kind {kind}", severity=Severity.HINT)


def _spelt(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A TFJob with its replica types as the operator's defaulting spells them, and how the file does."""
    specs = get(document, "spec", "tfReplicaSpecs")
    if not isinstance(specs, dict):
        return document, {}
    spellings = {name.lower(): name for name in shape_keys("TFReplicaSpecs")}
    names_of: dict[str, str] = {str(old): spellings.get(str(old).lower(), str(old)) for old in specs}
    renamed = {new: old for old, new in names_of.items() if new not in specs}
    new_specs = {new if new in renamed else old: specs[old] for old, new in names_of.items()}
    return {**document, "spec": {**document["spec"], "tfReplicaSpecs": new_specs}}, renamed


def _as_written(finding: Finding, renamed: Mapping[str, str]) -> Finding:
    path = finding.path
    if path[:2] == ("spec", "tfReplicaSpecs") and len(path) > 2 and path[2] in renamed:
        path = (*path[:2], renamed[str(path[2])], *path[3:])
    return Finding(path=path, message=finding.message, hint=finding.hint, severity=finding.severity)


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


def _tfjob(document: Mapping[str, Any]) -> Iterator[Finding]:
    specs, path = get(document, "spec", "tfReplicaSpecs"), ("spec", "tfReplicaSpecs")
    if not isinstance(specs, dict):
        return
    if not specs:
        message = "is empty: expected Chief, Worker, PS or Evaluator"
        yield Finding(path=path, message=message, severity=Severity.WARNING)
    chiefs = [key for key in ("Chief", "Master") if key in specs]
    if len(chiefs) == 2:
        yield Finding(path=(*path, "Master"), message="Chief and Master mean the same: expected one of them")
    for key, replica in specs.items():
        if isinstance(replica, dict):
            yield from _replica(key, replica, (*path, key))
    manager = get(document, "spec", "runPolicy", "managedBy")
    if manager is not None and manager not in _MANAGERS:
        where = ("spec", "runPolicy", "managedBy")
        yield Finding(path=where, message=f"{manager!r}: expected {_MANAGERS[1]} or {_MANAGERS[2]}")
    message = "the operator is no longer maintained, and Kueue deprecates it; JobSet is its successor"
    yield Finding(path=("kind",), message=message, severity=Severity.WARNING)


def _replica(key: str, replica: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    count = replica.get("replicas")
    if isinstance(count, int) and (count < 0 or (key in {"Chief", "Master"} and count != 1)):
        expected = f"there is one {key}" if count >= 0 else "expected 0 or more"
        yield Finding(path=(*path, "replicas"), message=f"{count}: {expected}", severity=Severity.WARNING)
    yield from template_findings(replica.get("template"), (*path, "template"))
    containers = get(replica, "template", "spec", "containers")
    if isinstance(containers, list):
        running = [get(item, "name") for item in containers if isinstance(item, dict)]
        if "tensorflow" not in running:
            message = f"{', '.join(map(str, running)) or 'no container'}: one must be called tensorflow"
            yield Finding(path=(*path, "template", "spec", "containers"), message=message)


def _pod_object(document: Mapping[str, Any]) -> Iterator[Finding]:
    yield from pod_findings(document.get("spec"), ("spec",), lone=True)
    annotations = get(document, "metadata", "annotations")
    if isinstance(annotations, dict):
        yield from _eci_annotations(annotations, ("metadata", "annotations"))


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
    "JobSet": jobset_findings,
    "ImageCache": _image_cache,
    "Pod": _pod_object,
    "Service": _service,
}
