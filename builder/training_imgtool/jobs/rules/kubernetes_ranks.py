"""Reads the machines of Kubernetes' jobs, whose ranks and addresses `ranks` checks.

Sources: JobSet's host names, Kubernetes' Indexed Jobs, training-operator 1.9 (pkg/controller.v1/pytorch and
pkg/webhooks/pytorch).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity, get
from training_imgtool.jobs.rules.ranks import UNKNOWN, Machines, Place, rank_findings, read_container

_MOST_HOSTS = 10_000  # of larger jobs, the names are not compared
_WEBHOOK = "training-operator 1.9 CRD and webhook"
_PORT_NAME, _PORT = "pytorchjob-port", 23456


def job_ranks(job: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks the programs of a Job that belongs to no other object."""
    pods, pod = job.get("parallelism", 1), get(job, "template", "spec") or {}
    is_indexed, name = job.get("completionMode") == "Indexed", get(root, "metadata", "name")
    named = range(pods if is_indexed and name and get(root, "kind") == "Job" and pods <= _MOST_HOSTS else 0)
    hosts = [f"{name}-{index}.{pod.get('subdomain', '<subdomain>')}" for index in named]
    for each in _read_pod(pod, (*path, "template", "spec")):
        is_one_of_several = pods == 1 and (each.has_rank or "RANK" in each.variables)
        nodes = () if is_one_of_several and job.get("completions", 1) == 1 else {1, pods}
        yield from rank_findings([replace(each, count=pods, hosts=hosts)], nodes, hosts)
        for text, where in (*each.commands, *each.variables.values()) if not is_indexed else ():
            if "JOB_COMPLETION_INDEX" in text:
                message = "only a Job with completionMode: Indexed has JOB_COMPLETION_INDEX"
                yield Finding(path=where, message=message, severity=Severity.WARNING)


def jobset_ranks(jobset: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks the programs of a JobSet; in a TrainingRuntime, of which a TrainJob sets the numbers, only the GPUs."""
    name = get(root, "metadata", "name") if path == ("spec",) else None
    domain = get(jobset, "network", "subdomain") or name
    groups: list[Machines] = []
    names: list[str] = []
    jobs = [(index, item) for index, item in enumerate(jobset.get("replicatedJobs") or []) if item]
    for index, item in jobs:
        count, pods = _sizes(item)
        named = range(count * pods if name and count * pods <= _MOST_HOSTS else 0)
        hosts = [f"{name}-{item.get('name')}-{i // pods}-{i % pods}.{domain}" for i in named]
        names += hosts
        where = (*path, "replicatedJobs", index, "template", "spec", "template", "spec")
        read = _read_pod(get(item, "template", "spec", "template", "spec") or {}, where)
        groups += [replace(each, count=count * pods if name else 0, hosts=hosts) for each in read]
    sizes = [_sizes(item) for _, item in jobs]
    totals = {sum(each.count for each in groups), sum(count * pods for count, pods in sizes)}
    nodes = totals.union(*((pods, count * pods) for count, pods in sizes))
    yield from rank_findings(groups, nodes if name else (), names)


def _sizes(item: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the number of a replicated job's Jobs, and the number of a Job's Pods."""
    return item.get("replicas", 1), get(item, "template", "spec", "parallelism") or 1


def pytorchjob_findings(spec: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Finds what the webhook refuses in a PyTorchJob, variables that the operator replaces, and wrong numbers."""
    name, elastic = str(get(root, "metadata", "name")), spec.get("elasticPolicy")
    roles = {key: item or {} for key, item in (spec.get("pytorchReplicaSpecs") or {}).items()}
    yield from (replace(finding, source=_WEBHOOK) for finding in _refuse_roles(spec, path, roles))
    given, groups = _given(spec, path, roles, name), list[Machines]()
    for key, item in roles.items():
        count, where = item.get("replicas", 1), (*path, "pytorchReplicaSpecs", key, "template", "spec", "containers")
        told = given | ({"PET_NODE_RANK": ("0", where)} if key == "Master" and count == 1 else {})
        hosts = [f"{name}-{key.lower()}-{index}" for index in range(min(count, _MOST_HOSTS))]
        for index, running in enumerate(get(item, "template", "spec", "containers") or []):
            if get(running or {}, "name") == "pytorch":
                own = read_container(running, (*where, index))
                groups.append(replace(own, variables={**own.variables, **told}, count=count, hosts=hosts))
                for variable in own.variables.keys() & told.keys():
                    message = f"{variable}: the operator replaces this variable: remove it"
                    yield Finding(path=own.variables[variable][1], message=message, severity=Severity.WARNING)
    nodes = {sum(item.get("replicas", 1) for item in roles.values())}
    if elastic and elastic.get("metrics"):  # with them, the operator changes the number
        nodes |= {*range(elastic.get("minReplicas", 1), min(elastic.get("maxReplicas", 1), _MOST_HOSTS) + 1)}
    yield from rank_findings(groups, nodes, [host for each in groups for host in each.hosts])


def _refuse_roles(spec: Mapping[str, Any], path: Path, roles: Mapping[str, Any]) -> Iterator[Finding]:
    elastic = spec.get("elasticPolicy")
    if elastic is not None and "Worker" not in roles:
        yield Finding(path=(*path, "elasticPolicy"), message="needs the role Worker")
    if "nProcPerNode" in (elastic or {}) and "nprocPerNode" in spec:
        yield Finding(path=(*path, "elasticPolicy", "nProcPerNode"), message="does not go with nprocPerNode")
    for key, item in roles.items():
        here, count = (*path, "pytorchReplicaSpecs", key), item.get("replicas")
        if key not in {"Master", "Worker"}:
            yield Finding(path=here, message=f"{key!r}: expected Master or Worker", at_key=True)
        if (key == "Master" and count != 1) or (count is not None and count < 1):
            message = f"{'is missing' if count is None else count}: expected 1{' or more' if key == 'Worker' else ''}"
            yield Finding(path=(*here, "replicas"), message=message)
        containers = get(item, "template", "spec", "containers") or []
        if "pytorch" not in [get(each or {}, "name") for each in containers]:
            where = (*here, "template", "spec", "containers")
            yield Finding(path=where, message="one container must be called pytorch")


def _given(spec: Mapping[str, Any], path: Path, roles: Mapping[str, Any], name: str) -> dict[str, Place]:
    """Returns the variables that the operator sets in each container."""
    elastic, processes = spec.get("elasticPolicy") or {}, (spec.get("nprocPerNode", "auto"), (*path, "nprocPerNode"))
    running = get(roles, "Master" if "Master" in roles else "Worker", "template", "spec", "containers") or []
    ports = {get(port or {}, "name"): port for item in running for port in get(item or {}, "ports") or []}
    port = str(get(ports, _PORT_NAME, "containerPort") or _PORT)
    size, where = str(sum(item.get("replicas", 1) for item in roles.values())), (*path, "elasticPolicy")
    given: dict[str, Place] = {"PET_NNODES": (size, path), "PET_NPROC_PER_NODE": processes}
    if "Master" in roles:
        given |= dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), (f"{name}-master-0", path))
        given |= dict.fromkeys(("MASTER_PORT", "PET_MASTER_PORT"), (port, path))
        given |= dict.fromkeys(("RANK", "WORLD_SIZE", "PET_NODE_RANK"), (UNKNOWN, path))
    if "elasticPolicy" in spec:
        ends = [str(elastic[key]) for key in ("minReplicas", "maxReplicas") if key in elastic]
        workers = str(get(roles, "Worker", "replicas") or 1)
        endpoint = f"{elastic.get('rdzvHost', f'{name}-worker-0')}:{elastic.get('rdzvPort', port)}"
        given |= {"PET_NNODES": (":".join(ends) or workers, where), "PET_RDZV_ENDPOINT": (endpoint, where)}
        given["PET_RDZV_BACKEND"] = (elastic.get("rdzvBackend", "c10d"), where)
        given["PET_NPROC_PER_NODE"] = (str(elastic.get("nProcPerNode", processes[0])), where)
    return given


def _read_pod(pod: Mapping[str, Any], path: Path) -> list[Machines]:
    """Reads the containers that start torchrun or have variables of ranks."""
    items = enumerate(pod.get("containers") or [])
    read = [read_container(item, (*path, "containers", index)) for index, item in items if item]
    return [each for each in read if each.is_told]
