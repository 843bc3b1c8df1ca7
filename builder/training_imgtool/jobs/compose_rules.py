"""The rules of a Compose file and of a TF_CONFIG that someone else wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training_imgtool.jobs.images.names import image_findings
from training_imgtool.jobs.model import Finding, Path, Severity, add_source, get
from training_imgtool.jobs.shapes import shape_findings, well_typed

_RESOLVER = "tf.distribute.cluster_resolver.TFConfigClusterResolver"
_TASKS = ("chief", "master", "worker", "ps", "evaluator")


def compose_findings(document: Any, *, allow_unknown: bool = False) -> list[Finding]:
    """Everything wrong with a Compose file: its keys, its images, its GPU reservations."""
    findings = list(shape_findings(document, "Compose", allow_unknown=allow_unknown))
    if "version" in document:
        message = "is obsolete: Compose ignores it"
        findings.append(Finding(path=("version",), message=message, severity=Severity.WARNING))
    services = (well_typed(document, "Compose") or {}).get("services")
    for name, service in services.items() if isinstance(services, dict) else ():
        if isinstance(service, dict):
            findings += _service(service, ("services", name))
    return list(add_source(findings, "Compose specification"))


def tf_config_findings(document: Any) -> list[Finding]:
    """Everything wrong with a TF_CONFIG, or with the variables of several nodes by name."""
    if "cluster" in document or "task" in document:
        return list(add_source(_tf_config(document, ()), _RESOLVER))
    findings: list[Finding] = []
    for name, variables in document.items():
        config = variables.get("TF_CONFIG") if isinstance(variables, dict) else None
        if not isinstance(config, dict):
            findings.append(Finding(path=(name,), message="expected a node with TF_CONFIG"))
        else:
            findings += _tf_config(config, (name, "TF_CONFIG"))
    return list(add_source(findings, _RESOLVER))


def _service(service: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if "image" in service:
        yield from image_findings(service["image"], (*path, "image"))
    elif not {"build", "extends", "provider"} & set(service):
        yield Finding(path=(*path, "image"), message="is missing: a service has an image or builds one")
    devices = get(service, "deploy", "resources", "reservations", "devices")
    for index, device in enumerate(devices if isinstance(devices, list) else []):
        if not isinstance(device, dict):
            continue
        here: Path = (*path, "deploy", "resources", "reservations", "devices", index)
        if device.get("count") is not None and "device_ids" in device:
            yield Finding(path=(*here, "device_ids"), message="does not go with count: expected one of them")
        count = device.get("count")
        if isinstance(count, str) and count != "all" and not count.isdecimal():
            yield Finding(path=(*here, "count"), message=f"{count!r}: expected a number or all")


def _tf_config(config: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    cluster, task = config.get("cluster"), config.get("task")
    if not isinstance(cluster, dict):
        yield Finding(path=(*path, "cluster"), message="is missing: expected each task's hosts")
        return
    yield from _cluster(cluster, (*path, "cluster"))
    if not isinstance(task, dict):
        yield Finding(path=(*path, "task"), message="is missing: expected type and index")
        return
    kind, index = task.get("type"), task.get("index")
    where: Path = (*path, "task")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        yield Finding(path=(*where, "index"), message=f"{index!r}: expected a number from 0")
    elif not isinstance(kind, str) or (kind != "evaluator" and kind not in cluster):
        listed = ", ".join(cluster)
        yield Finding(path=(*where, "type"), message=f"{kind!r} is not in the cluster: expected {listed} or evaluator")
    elif isinstance(cluster.get(kind), list) and index >= len(cluster[kind]):
        message = f"{index}: the cluster has {len(cluster[kind])} of {kind}"
        yield Finding(path=(*where, "index"), message=message)


def _cluster(cluster: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    seen: set[str] = set()
    if "chief" in cluster and "master" in cluster:
        yield Finding(path=(*path, "master"), message="chief and master mean the same: expected one of them")
    for kind, hosts in cluster.items():
        if kind not in _TASKS:
            message = f"{kind!r} is no task of TensorFlow: expected {', '.join(_TASKS)}"
            yield Finding(path=(*path, kind), message=message)
        if not isinstance(hosts, list):
            yield Finding(path=(*path, kind), message="expected a list of HOST:PORT")
            continue
        for index, host in enumerate(hosts):
            if not isinstance(host, str) or not host.rpartition(":")[2].isdecimal():
                yield Finding(path=(*path, kind, index), message=f"{host!r} is not HOST:PORT")
            elif host in seen:
                yield Finding(path=(*path, kind, index), message=f"{host} appears twice")
            seen.add(str(host))
