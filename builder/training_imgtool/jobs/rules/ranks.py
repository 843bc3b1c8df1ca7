"""Finds numbers of processes and addresses in a job with torchrun that do not fit the job's machines.

The services accept most of these jobs: the processes wait for others that never come, or leave GPUs idle.
Sources: torchrun's options and PET_ variables (torch 2.13), Kubeflow Trainer's plugins/torch, JobSet's host names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from training_imgtool.jobs.model import Finding, Path, Severity, get

GPU = "nvidia.com/gpu"
RESERVED = frozenset({"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"})
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_DOMAIN = re.compile(r"(?:\.[a-z0-9-]+\.svc(?:\.cluster\.local)?)?(?::[0-9]+)?\Z")
_MOST_HOSTS = 10_000  # of larger jobs, the names are not compared
Place = tuple[str, Path]  # a value, and its path in the document


def job_ranks(job: Mapping[str, Any], path: Path, root: Any) -> Iterator[Finding]:
    """Checks the containers of a Job; in a JobSet, by the number of Pods of all its Jobs, and by their names."""
    pod, counts, hosts = get(job, "template", "spec") or {}, [int(job.get("parallelism", 1))], set[str]()
    if "replicatedJobs" in path:
        above = path[: path.index("replicatedJobs") - 1]
        for key in above:
            root = root[key]
        jobs = [item for item in get(root, "spec", "replicatedJobs") or [] if item]
        sizes = [(item.get("replicas", 1), get(item, "template", "spec", "parallelism") or 1) for item in jobs]
        counts = [sum(count * pods for count, pods in sizes), *(count * pods for count, pods in sizes)]
        name = get(root, "metadata", "name") if not above else None
        domain = get(root, "spec", "network", "subdomain") or name
        for item, (count, pods) in zip(jobs if name and counts[0] <= _MOST_HOSTS else (), sizes, strict=False):
            hosts |= {f"{name}-{item.get('name')}-{i}-{k}.{domain}" for i in range(count) for k in range(pods)}
    for index, running in enumerate(pod.get("containers") or []):
        if running:
            gpus = get(running, "resources", "limits", GPU)
            where = (*path, "template", "spec", "containers", index)
            yield from container_ranks(running, where, nodes={1, *counts}, gpus=gpus, hosts=hosts)


def container_ranks(
    running: Mapping[str, Any], path: Path, *, nodes: Collection[int], gpus: Any = None, hosts: Collection[str] = ()
) -> Iterator[Finding]:
    """Checks the command and the variables of one container.

    Args:
        running: the container.
        path: its path.
        nodes: the possible numbers of machines; empty if the numbers are unknown.
        gpus: the GPUs of the container, as its limits name them.
        hosts: the names that JobSet gives to the Pods; empty if the names are unknown.
    """
    for count, where in _settings(running, path, "nnodes", "PET_NNODES"):
        low, _, high = count.partition(":")
        if (
            low.isdecimal()
            and nodes
            and not any(int(low) <= n <= int(high if high.isdecimal() else low) for n in nodes)
        ):
            expected = " or ".join(map(str, sorted({*nodes} - {1}))) or "1"
            yield _warning(where, f"{count} machines, but the job has {expected}: its processes wait for each other")
    for count, where in _settings(running, path, "nproc_per_node", "PET_NPROC_PER_NODE"):
        yield from process_findings(count, gpus, where)
    for option, variable in (("master_addr", "PET_MASTER_ADDR"), ("", "MASTER_ADDR")):
        for address, where in _settings(running, path, option, variable):
            host = _DOMAIN.sub("", address)
            same_domain = host.partition(".")[2] in {name.partition(".")[2] for name in hosts}
            if same_domain and host not in hosts:
                yield _warning(where, f"{host}: no Pod has this name: expected {min(hosts)}")


def process_findings(count: Any, gpus: Any, where: Path) -> Iterator[Finding]:
    """Checks that a machine has one process for each GPU."""
    if str(count).isdecimal() and str(gpus).isdecimal() and int(count) != int(gpus):
        yield _warning(where, f"{count} processes on a machine with {gpus} GPUs: expected one for each GPU")


def _settings(running: Mapping[str, Any], path: Path, option: str, variable: str) -> Iterator[Place]:
    """Yields the option of torchrun, which takes precedence, or else the variable; without those with `$`."""
    pattern = re.compile(rf"--{option.replace('_', '[-_]')}[= ]+['\"]?([^\s'\"\\;]+)") if option else None
    texts = {key: " ".join(map(str, running.get(key) or [])) for key in ("args", "command")}
    runs = pattern and any(map(_TORCHRUN.search, texts.values()))
    found = [((*path, key), match[1]) for key in texts if runs and pattern and (match := pattern.search(texts[key]))]
    for index, item in enumerate(running.get("env") or [] if not found else ()):
        if get(item or {}, "name") == variable:
            found.append(((*path, "env", index, "value"), str(get(item, "value"))))
    yield from ((value, where) for where, value in found if "$" not in value)


def _warning(where: Path, message: str) -> Finding:
    return Finding(path=where, message=message, severity=Severity.WARNING)
