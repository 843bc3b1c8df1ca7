"""The cluster of a job: addresses and ranks of its replicas, and each service's TF_CONFIG and CLUSTER_SPEC.

Sources: Google's pages on distributed training of AI Platform and Vertex AI; kubeflow/training-operator v1.9,
pkg/controller.v1/tensorflow/tensorflow.go. Who sets which variable:

- AI Platform sets TF_CONFIG on every machine. The first key of `cluster` is `master`, or `chief` with
  useChiefInTfConfig; the evaluator appears only in `task.type`. Jobs with images also get CLUSTER_SPEC. It lists every
  replica, also the evaluator, and always calls the master `master`, even if TF_CONFIG calls it `chief`.
- Vertex AI sets TF_CONFIG if the job has more than one replica, and always calls the master `chief`. It sets
  CLUSTER_SPEC on every machine, with the pools `workerpool0` to `workerpool3`.
- A TFJob sets TF_CONFIG if the job has more than one replica, with the evaluator in `cluster`; no CLUSTER_SPEC.
- The user's own machines (`local`) get what TensorFlow itself expects: `cluster` without the evaluator, and `task`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from training_imgtool.base.errors import InputError
from training_imgtool.model.spec import Role

PORT = 2222


class Flavour(StrEnum):
    """A form of TF_CONFIG, named after a service. Forms with `-master` call the master `master`, others `chief`."""

    AI_PLATFORM = "ai-platform"
    AI_PLATFORM_MASTER = "ai-platform-master"
    VERTEX = "vertex"
    TFJOB = "tfjob"
    TFJOB_MASTER = "tfjob-master"
    LOCAL = "local"
    LOCAL_MASTER = "local-master"

    @property
    def first(self) -> str:
        """The master's name in TF_CONFIG."""
        return "master" if self.value.endswith("-master") else "chief"


Hosts = Mapping[Role, Sequence[str]]
_AI_PLATFORM = {Flavour.AI_PLATFORM, Flavour.AI_PLATFORM_MASTER}
_TFJOB = {Flavour.TFJOB, Flavour.TFJOB_MASTER}
_POOL = {role: f"workerpool{index}" for index, role in enumerate(Role)}


def tf_config(
    flavour: Flavour,
    hosts: Hosts,
    role: Role,
    index: int,
    *,
    job: Mapping[str, Any] | None = None,
    trial: str | None = None,
    cloud: str | None = None,
) -> dict[str, Any] | None:
    """Returns the TF_CONFIG of one replica, or None if the service sets no TF_CONFIG.

    Args:
        flavour: the form of TF_CONFIG.
        hosts: each role's machines as `HOST` or `HOST:PORT`, in order of index; port 2222 is added.
        role: the replica's role.
        index: the replica's number within the role, from 0.
        job: the value that the service puts under `job`: the TrainingInput or the CustomJobSpec.
        trial: the trial's number in a hyperparameter job.
        cloud: AI Platform's opaque `task.cloud`.

    Raises:
        InputError: `hosts` has no such replica.
    """
    _must_have(hosts, role, index)
    if _replicas(hosts) == 1 and flavour in {Flavour.VERTEX, *_TFJOB}:
        return None
    listed = [r for r in Role if hosts.get(r) and (r is not Role.EVALUATOR or flavour in _TFJOB)]
    config: dict[str, Any] = {
        "cluster": {task_name(flavour, r): [with_port(host) for host in hosts[r]] for r in listed},
        "task": _task(task_name(flavour, role), index, trial, cloud if flavour in _AI_PLATFORM else None),
        "environment": "cloud",
    }
    return config if job is None or flavour not in {*_AI_PLATFORM, Flavour.VERTEX} else {**config, "job": dict(job)}


def cluster_spec(
    flavour: Flavour,
    hosts: Hosts,
    role: Role,
    index: int,
    *,
    job: Mapping[str, Any] | None = None,
    trial: str | None = None,
    cloud: str | None = None,
) -> dict[str, Any] | None:
    """Returns the CLUSTER_SPEC of one replica, or None if the service sets none. Takes the arguments of `tf_config`.

    AI Platform may add further keys, such as open ports, which Google does not document.
    """
    _must_have(hosts, role, index)
    if flavour in _TFJOB:
        return None

    def name(r: Role) -> str:
        if flavour is Flavour.VERTEX:
            return _POOL[r]
        return r.value if flavour in _AI_PLATFORM else task_name(flavour, r)

    spec: dict[str, Any] = {
        "cluster": {name(r): [with_port(host) for host in hosts[r]] for r in Role if hosts.get(r)},
        "task": _task(name(role), index, trial, cloud if flavour in _AI_PLATFORM else None),
        "environment": "cloud",
    }
    return spec if job is None or flavour in {Flavour.LOCAL, Flavour.LOCAL_MASTER} else {**spec, "job": dict(job)}


def describe_tasks(flavour: Flavour, hosts: Hosts, role: Role, index: int, **more: Any) -> dict[str, Any]:
    """Returns TF_CONFIG and CLUSTER_SPEC of one replica, as far as the service sets them, with their values as data."""
    values = {
        "TF_CONFIG": tf_config(flavour, hosts, role, index, **more),
        "CLUSTER_SPEC": cluster_spec(flavour, hosts, role, index, **more),
    }
    return {name: value for name, value in values.items() if value is not None}


def to_texts(variables: Mapping[str, Any]) -> dict[str, str]:
    """Writes values of variables that are data as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in variables.items()
    }


def addresses_of(hosts: Hosts) -> list[str]:
    """Lists the addresses of all replicas in the order of ranks, which is that of roles; port 2222 is added."""
    return [with_port(host) for role in Role for host in hosts.get(role, ())]


def rank_of(hosts: Hosts, role: Role, index: int) -> int:
    """Returns the number of a replica among all; raises InputError if `hosts` has no such replica."""
    _must_have(hosts, role, index)
    return sum(len(hosts.get(before, ())) for before in list(Role)[: list(Role).index(role)]) + index


def task_name(flavour: Flavour, role: Role) -> str:
    """Returns the role's name in TF_CONFIG."""
    return flavour.first if role is Role.MASTER else role.value


def with_port(host: str) -> str:
    """Adds the port 2222 to a host without a port; puts an IPv6 address in brackets."""
    if host.startswith("["):
        return host if "]:" in host else f"{host}:{PORT}"
    return host if ":" in host else f"{host}:{PORT}"


def _task(name: str, index: int, trial: str | None, cloud: str | None) -> dict[str, Any]:
    task: dict[str, Any] = {"type": name, "index": index}
    task |= {} if trial is None else {"trial": trial}
    return task if cloud is None else {**task, "cloud": cloud}


def _replicas(hosts: Hosts) -> int:
    return sum(len(of_role) for of_role in hosts.values())


def _must_have(hosts: Hosts, role: Role, index: int) -> None:
    having = len(hosts.get(role, ()))
    if not 0 <= index < having:
        raise InputError(f"there is no {role} {index}: the number of {role} replicas is {having}")
