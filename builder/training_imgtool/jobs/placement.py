"""Which nodes a role's Pods run on: GPUs, TPU slices, spot capacity, reservations as node labels, taints and limits.

Names in Google's words (NVIDIA_L4, TPU_V6E, SPOT) choose nodes by GKE's labels. A GPU's name as NVIDIA's own label has
it (NVIDIA-L4) chooses by that label, on any cluster with GPU feature discovery; `any` chooses no type.

Sources: GKE's pages "Plan TPUs", "About GPUs", "Spot VMs", "Consuming reserved zonal resources"; AI-Hypercomputer/xpk
at 2026-06-25, core/system_characteristics.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.model import Document, replicas
from training_imgtool.jobs.tables import gpu_label, nearest
from training_imgtool.jobs.yamlio import read_table
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, Tpu

GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
NODE_POOL = "cloud.google.com/gke-nodepool"
_CAPACITY = {
    "SPOT": "cloud.google.com/gke-spot",
    "LOW_COST": "cloud.google.com/gke-spot",
    "FLEX_START": "cloud.google.com/gke-flex-start",
}
_RESERVATION = re.compile(
    r"(?:projects/(?P<project>[^/]+)/(?:zones/[^/]+/)?reservations/)?(?P<name>[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)\Z"
)
_TOPOLOGY = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}\Z")
_SMALL = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")  # further ones in three dimensions are multiples of 4x4x4


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A TPU slice.

    Attributes:
        label: GKE's name of the TPU.
        hosts: how many nodes it is.
        chips: on each of them.
    """

    label: str
    topology: str
    hosts: int
    chips: int


def slice_of(spec: ImageSpec, role: Role) -> Slice | None:
    """Returns the slice of a role that `errors` found nothing wrong with; None for a role without a TPU."""
    tpu = spec.roles[role].tpu
    label = _label(tpu) if tpu else None
    if tpu is None or label is None or not _TOPOLOGY.match(tpu.topology or ""):
        return None
    count = prod(map(int, str(tpu.topology).split("x")))
    machine = re.search(r"-(\d)t\Z", spec.roles[role].machine or "")
    chips = int(machine[1]) if machine else 1 if count == 1 else 4
    return Slice(label=label, topology=str(tpu.topology), hosts=max(1, count // chips), chips=chips)


def with_hosts(spec: ImageSpec) -> ImageSpec:
    """Counts the hosts of a TPU slice as replicas of its role: each runs one Pod."""
    slices = {role: slice_of(spec, role) for role in replicas(spec)}
    hosts = {role: replace(spec.roles[role], count=found.hosts) for role, found in slices.items() if found}
    return replace(spec, roles={**spec.roles, **hosts}) if hosts else spec


def limits(spec: ImageSpec, role: Role) -> Document:
    """Counts the role's devices. They are limits, of which Kubernetes makes the requests."""
    gpus, found = spec.roles[role].gpus, slice_of(spec, role)
    return {**({GPU: gpus.count} if gpus else {}), **({TPU: found.chips} if found else {})}


def selector(spec: ImageSpec, role: Role) -> dict[str, str]:
    """Chooses the nodes: the labels that the spec gives win."""
    of_role, times, found = spec.roles[role], spec.job.scheduling, slice_of(spec, role)
    chosen: dict[str, str] = {}
    if of_role.gpus and not of_role.node_selector:
        chosen |= gpu_label(of_role.gpus.type)
    if found:
        chosen |= {"cloud.google.com/gke-tpu-accelerator": found.label}
        chosen |= {"cloud.google.com/gke-tpu-topology": found.topology}
    if times and times.strategy in _CAPACITY:
        chosen |= {_CAPACITY[times.strategy]: "true"}
    if match := _RESERVATION.match(of_role.reservation or ""):
        chosen |= {"cloud.google.com/reservation-name": match["name"]}
        chosen |= {"cloud.google.com/reservation-project": match["project"]} if match["project"] else {}
    return {**chosen, **of_role.node_selector}


def tolerations(spec: ImageSpec, role: Role) -> list[Document]:
    """Accepts the taints of nodes with these devices, and of spot nodes, unless the spec accepts them itself."""
    times = spec.job.scheduling
    made: list[Document] = [{"key": device, "operator": "Exists"} for device in limits(spec, role)]
    if times and times.strategy in _CAPACITY:
        made.append({"key": _CAPACITY[times.strategy], "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    own = {item.key for item in spec.roles[role].tolerations}
    return [item for item in made if item["key"] not in own]


def errors(spec: ImageSpec, role: Role) -> Iterator[FieldError]:
    """Finds what is wrong with the role's TPU slice and its reservation."""
    of_role, field = spec.roles[role], f"roles.{role}"
    if of_role.reservation and not _RESERVATION.match(of_role.reservation):
        message = f"{of_role.reservation!r} is not a reservation: expected its name, or projects/P/reservations/NAME"
        yield FieldError(message, field=f"{field}.reservation")
    if spec.accelerator_of(role) is not Accelerator.TPU:
        return
    tpu = of_role.tpu
    if tpu is None or tpu.topology is None:
        yield FieldError("a TPU slice has a type and a topology", field=f"{field}.tpu", hint="such as 4x4")
        return
    yield from _slice_errors(tpu, _label(tpu), f"{field}.tpu")
    found = slice_of(spec, role)
    if found and found.hosts > 1 and role is not Role.WORKER:
        message = f"a slice of {found.hosts} hosts is as many replicas; there is one {role}"
        yield FieldError(message, field=field, hint="make it the workers: worker 0 is the chief")
    if of_role.count > 1:
        message = f"{of_role.count}: TensorFlow trains on one slice; a topology says how large it is"
        yield FieldError(message, field=f"{field}.count")


def _slice_errors(tpu: Tpu, label: str | None, field: str) -> Iterator[FieldError]:
    table = read_table("machines/gke.yaml")["tpus"]
    topology = str(tpu.topology)
    if label is None:
        types = [kind for row in table.values() for kind in row["types"]]
        message = f"{tpu.type!r} is not a TPU of GKE: expected {', '.join(types)}"
        yield FieldError(message, field=f"{field}.type", hint=nearest(tpu.type, types))
    elif not _TOPOLOGY.match(topology) or not _fits(topology, table[label].get("topologies")):
        expected = ", ".join(table[label].get("topologies") or (*_SMALL, "multiples of 4x4x4"))
        yield FieldError(f"{topology!r}: {label} has {expected}", field=f"{field}.topology")
    if tpu.tf_version:
        yield FieldError("belongs to AI Platform alone", field=f"{field}.tf_version")


def _fits(topology: str, listed: list[str] | None) -> bool:
    sides = [int(side) for side in topology.split("x")]
    return topology in (listed or _SMALL) or (
        listed is None and len(sides) == 3 and all(side % 4 == 0 for side in sides)
    )


def _label(tpu: Tpu) -> str | None:
    table = read_table("machines/gke.yaml")["tpus"]
    return next((label for label, row in table.items() if tpu.type in {label, *row["types"]}), None)
