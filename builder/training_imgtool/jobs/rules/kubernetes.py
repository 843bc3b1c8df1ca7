"""Finds what Kubernetes refuses in an object, but kubectl's parser and the object's shape do not find.

Source: kubernetes/kubernetes pkg/apis/core/validation (1.34) and the list-map keys of the CRDs' Pod templates.
The rules do not require values that a webhook sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from training_imgtool.jobs import slices
from training_imgtool.jobs.model import NO_MAPPING, NOT_CHECKED, Finding, Path, Severity, add_source, get
from training_imgtool.jobs.rules import names
from training_imgtool.jobs.rules.batch import job_findings
from training_imgtool.jobs.rules.images import PLACEHOLDER
from training_imgtool.jobs.rules.kubernetes_ranks import job_ranks, jobset_ranks, pytorchjob_findings
from training_imgtool.jobs.rules.shapes import Rules, shape_findings, well_typed
from training_imgtool.jobs.tables import nearest
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.model.targets import Target

TARGETS = {kind: target for target in Target for kind in target.row.kinds}
_OBJECTS: Mapping[str, str] = read_table("shapes_others.yaml", "jobs/rules")["^objects"]
KINDS = {kind: words.split()[1:] or [TARGETS[kind].row.kinds[kind]] for kind, words in _OBJECTS.items()}
"""The apiVersions of every kind that has a shape; KIND.GROUP where another group has the same kind."""
Judge = Callable[..., Iterable[Finding]]
_MACHINE = "node.kubernetes.io/instance-type"
_FUSE, _FUSE_DRIVER = "gke-gcsfuse/volumes", "gcsfuse.csi.storage.gke.io"
_TYPO = 0.85  # likeness of two kinds of which one is probably misspelt
_SOME, _NO, _ONE = range(1, 1 << 31), range(1), range(1, 2)  # how many values an operator takes
_VALUES = {"In": _SOME, "NotIn": _SOME, "Exists": _NO, "DoesNotExist": _NO, "Gt": _ONE, "Lt": _ONE}
_STRICT = {"TFJob", "PyTorchJob", "JobSet", "TrainJob", "Service"}  # names of other kinds may have dots


def known_kind(document: Any) -> str | None:
    """Returns the entry in `KINDS` for the object's kind and API group, even if the version is misspelt; else None."""
    kind, version = (document.get(key) for key in ("kind", "apiVersion"))
    group = _group(version)
    if f"{kind}.{group}" in KINDS:
        return f"{kind}.{group}"
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    own = _group(KINDS[kind][0])
    return kind if "." not in group or group == own or nearest(group, [own]) else None


def _group(version: Any) -> str:
    return str(version).rpartition("/")[0]


def object_findings(
    document: Any, kind: str, judge: Judge | None, target: Target | None, *, allow_unknown: bool
) -> list[Finding]:
    """Finds faults in an object's keys, names and Pods, and the faults that the target's function `judge` finds."""
    version, versions = document.get("apiVersion"), KINDS[kind]
    findings = list(shape_findings(document, kind, _RULES, allow_unknown=allow_unknown))
    if version not in versions:
        message = f"{version!r}: expected {' or '.join(versions)} for {kind}"
        findings.append(Finding(path=("apiVersion",), message=message))
    document = well_typed(document, kind)
    findings += _metadata(kind, document.get("metadata"))
    findings += judge(document, allow_unknown=allow_unknown, region=None) if judge else ()
    return list(add_source(findings, target.row.rules if target else f"the schema of {versions[0]} {document['kind']}"))


def unknown_kind(kind: Any, version: Any) -> Finding:
    """Makes the finding for an unknown kind: a similar kind, or a warning that imgtool does not check the object."""
    if isinstance(kind, str) and isinstance(version, str | None):
        if meant := find_meant_kind(kind, version):
            message = f"{kind!r} is not a kind of {version}"
            return Finding(path=("kind",), message=message, hint=f"did you mean {meant}?", source=str(version))
        message = f"{NOT_CHECKED}: imgtool has no schema of the kind {kind} ({version})"
        return Finding(path=("kind",), message=message, severity=Severity.WARNING)
    key, value, example = ("apiVersion", version, "v1") if isinstance(kind, str) else ("kind", kind, "Job")
    return Finding(path=(key,), message=f"{value!r}: expected text such as {example}", source="Kubernetes API")


def find_meant_kind(kind: Any, version: Any) -> str | None:
    """Returns the kind that an unknown kind probably misspells, or None."""
    if not isinstance(kind, str):
        return None
    alike = [name for name in KINDS if name.lower() == kind.lower() != name and name != kind]
    of_version = [name.partition(".")[0] for name, versions in KINDS.items() if version in versions]
    close = alike or get_close_matches(kind, of_version, n=1, cutoff=_TYPO)
    return close[0] if close and (alike or not _adds_word(kind, close[0])) else None


def _adds_word(kind: str, other: str) -> bool:
    """Tells whether one kind is the other with a further word, as PersistentVolumeClaim is."""
    shorter, longer = sorted((kind, other), key=len)
    return longer.startswith(shorter) and longer[len(shorter) :][:1].isupper()


def _metadata(kind: str, metadata: Any) -> Iterator[Finding]:
    if not isinstance(metadata, dict):
        return
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        yield Finding(path=("metadata", "name"), message="is missing: an object has name or generateName")
    if not isinstance(name, str) or not name:
        return
    message = names.dns_label(name, letter_first=True) if kind in _STRICT else names.subdomain(name)
    if message and not (kind == "JobSet" and len(name) > names.LABEL_LENGTH):  # their jobs' names are too long first
        yield Finding(path=("metadata", "name"), message=message)


def _pod(pod: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks that container names differ and that mounted volumes exist; a JobSet may add volumes."""
    claims = get(root, "spec", "volumeClaimPolicies") or get(root, "spec", "template", "spec", "volumeClaimPolicies")
    added = [get(item, "metadata", "name") for policy in claims or [] for item in get(policy, "templates") or []]
    volumes = {*added, *(get(item, "name") for item in pod.get("volumes") or [])}
    seen: set[Any] = set()
    for key in ("initContainers", "containers"):
        for index, running in enumerate(pod.get(key) or []):
            if not isinstance(running, dict):
                continue
            here: Path = (*path, key, index)
            if (name := running.get("name")) in seen:
                yield Finding(path=(*here, "name"), message=f"{name!r} appears twice")
            seen.add(name)
            for place, mount in enumerate(running.get("volumeMounts") or []):
                volume = get(mount, "name") if isinstance(mount, dict) else None
                if volume is not None and volume not in volumes:
                    message = f"{volume!r} is not among the Pod's volumes"
                    yield Finding(path=(*here, "volumeMounts", place, "name"), message=message)


def slice_findings(
    pod: Mapping[str, Any], path: Path, annotations: Mapping[str, Any] = NO_MAPPING
) -> Iterator[Finding]:
    """Checks the nodes that a Pod with a TPU selects: the topology, the machine type, and the chips per machine."""
    nodes, here = pod.get("nodeSelector") or {}, (*path, "nodeSelector")
    label, topology, machine = (str(nodes.get(key)) for key in (slices.ACCELERATOR, slices.TOPOLOGY, _MACHINE))
    both = {slices.ACCELERATOR, slices.TOPOLOGY}
    if not both & nodes.keys() or any(PLACEHOLDER.search(text) for text in (label, topology)):
        return
    for key in both - nodes.keys() if not _asks_part(annotations) else ():
        yield _warning(
            (*here, key), "is missing: GKE's TPU nodes have this label, and a Pod that selects one needs both"
        )
    if slices.ACCELERATOR in nodes and label not in slices.list_accelerators():
        near = nearest(label, slices.list_accelerators())
        yield _warning((*here, slices.ACCELERATOR), f"{label!r} is not a TPU of GKE: no node has this label", near)
    if not any(slices.TPU in (get(item, "resources", key) or {}) for item, key in _resource_lists(pod)):
        yield _warning((*path, "containers"), f"no container requests {slices.TPU}, so no TPU is used")
    if label not in slices.read_labels() or slices.TOPOLOGY not in nodes:
        return
    known, found = [machine] if machine in slices.list_machines() else [], slices.find_slices(label, topology)
    if not found:
        message = f"no such nodes: {label} has {slices.list_topologies(label)}"
        yield Finding(path=(*here, slices.TOPOLOGY), message=f"{topology!r}: {message}")
        return
    for kind in known if machine not in {row.machine for row in found} else ():
        message = f"{kind} cannot form {label} {topology}: expected {' or '.join(row.machine for row in found)}"
        yield Finding(path=(*here, _MACHINE), message=message)
        return
    chips = _count_chips(pod)
    fitting = [row.chips for row in found if not known or row.machine in known]
    if chips is not None and chips not in fitting:
        message = f"{chips} chips: a machine of {label} {topology} has {' or '.join(map(str, fitting))}"
        yield Finding(path=(*path, "containers"), message=f"{message}, and one Pod must request all of them")


def _asks_part(annotations: Mapping[str, Any]) -> bool:
    """Tells whether Kueue's annotations ask for a part of a slice, whose nodes Kueue then chooses."""
    return any("slice" in key for key in annotations)


def _resource_lists(pod: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    for item in (*(pod.get("containers") or []), *(pod.get("initContainers") or [])):
        yield from ((item, key) for key in ("limits", "requests") if isinstance(item, dict))


def _warning(path: Path, message: str, hint: str | None = None) -> Finding:
    return Finding(path=path, message=message, hint=hint, severity=Severity.WARNING)


def _count_chips(pod: Mapping[str, Any]) -> int | None:
    """Counts the TPU chips of a Pod's containers; None if there is no request, or if one is not a number."""
    asked = [get(item, "resources", "limits", slices.TPU) for item in pod.get("containers") or []]
    texts = [str(value) for value in asked if value is not None]
    return sum(map(int, texts)) if texts and all(text.isdecimal() for text in texts) else None


def host_findings(job: Mapping[str, Any], path: Path, *, indexed: bool = True) -> Iterator[Finding]:
    """Checks that a Job on a TPU slice has one Pod per host, unless Kueue's annotations ask for a part of a slice.

    GKE numbers the hosts of a slice by the Pods' index, which only an Indexed Job has.
    """
    template = job.get("template") or {}
    pod, annotations = template.get("spec") or {}, get(template, "metadata", "annotations") or {}
    nodes, chips = pod.get("nodeSelector") or {}, _count_chips(pod)
    label, topology = str(nodes.get(slices.ACCELERATOR)), str(nodes.get(slices.TOPOLOGY))
    if label not in slices.read_labels() or _asks_part(annotations):
        return
    found = [row for row in slices.find_slices(label, topology) if chips in {None, row.chips}]
    hosts = [row.hosts for row in found if nodes.get(_MACHINE) not in slices.list_machines() - {row.machine}]
    at_once = job.get("parallelism", 1)
    if hosts and min(hosts) > 1 and not indexed:
        yield _warning((*path, "completionMode"), "expected Indexed: without it, each host of the slice is worker 0")
    for key, value in (("completions", job.get("completions", at_once)), ("parallelism", at_once)):
        if hosts and isinstance(value, int) and value not in hosts:
            message = f"{value}: {label} {topology} has {' or '.join(map(str, hosts))} hosts, and each runs one Pod"
            yield Finding(path=(*path, key), message=message)
            return


def _container(running: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks that no variable appears twice; only warns for a bare Pod, because the API server accepts it."""
    severity = Severity.WARNING if get(root or {}, "kind") == "Pod" else Severity.ERROR
    names = [get(item, "name") for item in running.get("env") or []]
    for index, name in enumerate(names):
        if name and name in names[:index]:
            message = f"{name!r} appears twice: Kubernetes uses the last one"
            yield Finding(path=(*path, "env", index, "name"), message=message, severity=severity)


def _resources(resources: Mapping[str, Any], path: Path, _root: Any) -> Iterator[Finding]:
    """Checks that no request is above its limit, and that GPUs appear as limits, in whole numbers."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for key, request in requests.items():
        limit, whole = limits.get(key), "/" in key and "hugepages" not in key
        if whole and str(request) != str(limit):
            message = f"{request}: a GPU is a limit; a request must equal it"
            yield Finding(path=(*path, "requests", key), message=message)
        elif (low := _size(limit)) is not None and (_size(request) or 0) > low:
            yield Finding(path=(*path, "requests", key), message=f"{request} is above the limit {limit}")
    for key, limit in limits.items():
        whole = "/" in key and "hugepages" not in key and "kubernetes.io/" not in key
        if whole and re.fullmatch(r"[0-9.]+[munkMGTPE]?i?", str(limit)) and (_size(limit) or 0) % 1:
            yield Finding(path=(*path, "limits", key), message=f"{limit}: expected a whole number such as 1")


def _size(text: Any) -> float | None:
    match = re.fullmatch(r"([0-9.]+)([munkMGTPE]?i?)", str(text))
    if match is None or names.amount(str(text)):
        return None
    unit = match[2]
    scale = {"m": 1e-3, "u": 1e-6, "n": 1e-9, "k": 1e3, "": 1.0}
    return float(match[1]) * (
        1024.0 ** "_KMGTPE".index(unit[0]) if unit.endswith("i") else scale.get(unit) or 1000.0 ** "_kMGTPE".index(unit)
    )


def _toleration(item: Mapping[str, Any], path: Path, _root: Any) -> Iterator[Finding]:
    parts = (item.get(key) for key in ("key", "operator", "value", "effect"))
    if problem := names.toleration(*parts):
        yield Finding(path=(*path, problem[0]), message=problem[1])
    if "tolerationSeconds" in item and item.get("effect") != "NoExecute":
        yield Finding(path=(*path, "effect"), message="tolerationSeconds goes only with NoExecute")


def _expression(item: Mapping[str, Any], path: Path, _root: Any) -> Iterator[Finding]:
    """Checks the number of values of a node selector's or a label selector's operator."""
    operator, count = item.get("operator"), len(item.get("values") or [])
    wanted = _VALUES.get(str(operator))
    if wanted is not None and count not in wanted:
        expected = "none" if 0 in wanted else "one" if len(wanted) == 1 else "one or more"
        yield Finding(path=(*path, "values"), message=f"{operator} with {count} values: expected {expected}")


def _job(job: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    of_jobset = get(root or {}, "kind") not in {"Job", "CronJob"}
    yield from () if of_jobset else job_ranks(job, path, root)
    yield from job_findings(job, path, of_jobset=of_jobset)
    yield from host_findings(job, path, indexed=job.get("completionMode", "Indexed" if of_jobset else "") == "Indexed")


def _service(service: Mapping[str, Any], path: Path, _root: Any) -> Iterator[Finding]:
    ports, address = service.get("ports") or [], service.get("clusterIP")
    if not ports and address != "None" and service.get("type") != "ExternalName":
        yield Finding(path=(*path, "ports"), message="is missing: a Service has ports unless its clusterIP is None")
    for index, port in enumerate(ports if len(ports) > 1 else []):
        if isinstance(port, dict) and not port.get("name"):
            yield Finding(path=(*path, "ports", index, "name"), message="is missing: each of several ports has a name")
    if isinstance(address, str) and address not in {"", "None"} and not re.fullmatch(r"[0-9.]+|[0-9A-Fa-f:]+", address):
        yield Finding(path=(*path, "clusterIP"), message=f"{address!r}: expected None or an IP address")


def _annotations(path: Path, root: Any) -> Mapping[str, Any]:
    """Returns the annotations of the Pod whose spec is at `path`."""
    for key in path[:-1]:
        root = root[key]
    return get(root, "metadata", "annotations") or {}


def _memory_findings(pod: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Checks that folders in memory fit into the memory of the containers that mount them, because they count there."""
    sizes = {}
    for volume in pod.get("volumes") or []:
        folder = get(volume or {}, "emptyDir") or {}
        if folder.get("medium") == "Memory":
            sizes[volume.get("name")] = folder.get("sizeLimit")
    for index, running in enumerate(pod.get("containers") or []):
        limit = get(running or {}, "resources", "limits", "memory")
        for place, mount in enumerate(get(running or {}, "volumeMounts") or []):
            size = sizes.get(get(mount or {}, "name"))
            if None not in {_size(limit), _size(size)} and (_size(size) or 0) > (_size(limit) or 0):
                message = f"{size} of memory count as the container's, whose limit is {limit}"
                yield _warning((*path, "containers", index, "volumeMounts", place), message)


def _bucket_findings(pod: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks that a Pod with a bucket has the annotation without which GKE adds no driver to the Pod."""
    annotated = _annotations(path, root).get(_FUSE) == "true"
    for index, volume in enumerate(pod.get("volumes") or []):
        if get(volume or {}, "csi", "driver") == _FUSE_DRIVER and not annotated:
            message = f'the Pod needs the annotation {_FUSE}: "true": without it, the mount fails'
            yield _warning((*path, "volumes", index), message)


def _pod_and_slice(pod: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    yield from _pod(pod, path, root)
    yield from slice_findings(pod, path, _annotations(path, root))
    yield from _bucket_findings(pod, path, root)
    yield from _memory_findings(pod, path)


_RULES: Rules = {
    "PodSpec": _pod_and_slice,
    "Container": _container,
    "KubeResources": _resources,
    "Toleration": _toleration,
    "KubeMatchExpression": _expression,
    "BatchJobSpec": _job,
    "CoreJobSpec": _job,
    "JobSetSpec": jobset_ranks,
    "PyTorchJobSpec": pytorchjob_findings,
    "ServiceSpec": _service,
}
