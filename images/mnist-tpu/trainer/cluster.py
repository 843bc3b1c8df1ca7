"""The cluster this process is part of, from what the training service says in the environment.

Every service says it a little differently: AI Platform calls the first task `master` or `chief`, Vertex AI
numbers its pools in CLUSTER_SPEC, Kubeflow lists the evaluator among the hosts. Here there is one form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

_OUR_NAMES = {
    "master": "chief",
    "workerpool0": "chief",
    "workerpool1": "worker",
    "workerpool2": "ps",
    "workerpool3": "evaluator",
}


@dataclass(frozen=True)
class Cluster:
    """All tasks by name, and which of them this process is.

    Attributes:
        hosts: `host:port` of every chief, worker and ps, in the order of their indices.
        task: chief, worker, ps or evaluator.
        index: this process's place among the tasks of that name.
    """

    hosts: Mapping[str, tuple[str, ...]]
    task: str
    index: int

    @property
    def chief(self) -> str:
        """`host:port` of the chief."""
        return self.hosts["chief"][0]

    @property
    def distributed(self) -> bool:
        """Whether there are others to train with."""
        return "worker" in self.hosts or "ps" in self.hosts

    @property
    def lacks(self) -> str | None:
        """The task without which parameter server training is not possible, or None."""
        return next((name for name in ("chief", "worker", "ps") if name not in self.hosts), None)


def from_environment(environ: Mapping[str, str]) -> Cluster | None:
    """Reads TF_CONFIG or, where the service sets only that, CLUSTER_SPEC.

    Returns None when neither is set: then this process trains alone.
    Raises ValueError when they do not describe a cluster that this trainer can run in.
    """
    variable = next((name for name in ("TF_CONFIG", "CLUSTER_SPEC") if environ.get(name, "").strip()), None)
    if variable is None:
        return None
    try:
        said = json.loads(environ[variable])
        hosts = {_OUR_NAMES.get(name, name): tuple(addresses) for name, addresses in said.get("cluster", {}).items()}
        task = _OUR_NAMES.get(said["task"]["type"], said["task"]["type"])
        index = int(said["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{variable} is not understood: {error!r}") from error
    hosts = {name: hosts[name] for name in ("chief", "worker", "ps") if hosts.get(name)}
    cluster = Cluster(hosts, task, index)
    _check(cluster, variable)
    return cluster


def _check(cluster: Cluster, variable: str) -> None:
    if cluster.task not in {"chief", "worker", "ps", "evaluator"}:
        raise ValueError(f"{variable}: task {cluster.task!r} is none of chief, master, worker, ps, evaluator")
    if cluster.task == "evaluator" or not cluster.distributed:
        return
    if cluster.index not in range(len(cluster.hosts.get(cluster.task, ()))):
        raise ValueError(f"{variable}: there is no {cluster.task} {cluster.index} in the cluster")
    if "chief" not in cluster.hosts:
        raise ValueError(f"{variable}: there is no chief or master in the cluster")
