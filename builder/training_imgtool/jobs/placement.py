"""Writes a role's GPUs, TPU slice, spot capacity and reservation as node labels, tolerations and limits of Pods.

Google's names (NVIDIA_L4, TPU_V6E, SPOT) choose nodes by GKE's labels. A GPU's name in NVIDIA's own label (NVIDIA-L4)
chooses nodes by that label, on any cluster with GPU feature discovery. `any` allows every type.

Sources: GKE's pages "About GPUs", "Spot VMs", "Consuming reserved zonal resources", "Arm workloads on GKE".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from training_imgtool.base.errors import FieldError
from training_imgtool.jobs.frameworks import rules_of
from training_imgtool.jobs.model import Document
from training_imgtool.jobs.slices import (
    ACCELERATOR,
    TOPOLOGY,
    TPU,
    Slice,
    find_slices,
    list_topologies,
    read_labels,
)
from training_imgtool.jobs.tables import gpu_label, nearest
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, Tpu

GPU = "nvidia.com/gpu"
NODE_POOL = "cloud.google.com/gke-nodepool"
_ARCHITECTURE = "kubernetes.io/arch"
_CAPACITY = {
    "SPOT": "cloud.google.com/gke-spot",
    "LOW_COST": "cloud.google.com/gke-spot",
    "FLEX_START": "cloud.google.com/gke-flex-start",
}
_RESERVATION = re.compile(
    r"(?:projects/(?P<project>[^/]+)/(?:zones/[^/]+/)?reservations/)?(?P<name>[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)\Z"
)


def slice_of(spec: ImageSpec, role: Role) -> Slice | None:
    """Returns the TPU slice of a role that passed `errors`; None for a role without a TPU."""
    of_role = spec.roles[role]
    label = _label(of_role.tpu) if of_role.tpu else None
    if of_role.tpu is None or label is None:
        return None
    return next(iter(find_slices(label, str(of_role.tpu.topology), of_role.machine)), None)


def limits(spec: ImageSpec, role: Role) -> Document:
    """Returns the role's GPUs and TPU chips as limits, which Kubernetes also uses as requests."""
    gpus, found = spec.roles[role].gpus, slice_of(spec, role)
    return {**({GPU: gpus.count} if gpus else {}), **({TPU: found.chips} if found else {})}


def selector(spec: ImageSpec, role: Role) -> dict[str, str]:
    """Returns the node selector. Labels in the spec take precedence."""
    of_role, times, found = spec.roles[role], spec.job.scheduling, slice_of(spec, role)
    chosen = {_ARCHITECTURE: "arm64"} if spec.platform == "linux/arm64" else {}
    if of_role.gpus and not of_role.node_selector:
        chosen |= gpu_label(of_role.gpus.type)
    if found:
        chosen |= {ACCELERATOR: found.label, TOPOLOGY: found.topology}
    if times and times.strategy in _CAPACITY:
        chosen |= {_CAPACITY[times.strategy]: "true"}
    if match := _RESERVATION.match(of_role.reservation or ""):
        chosen |= {"cloud.google.com/reservation-name": match["name"]}
        chosen |= {"cloud.google.com/reservation-project": match["project"]} if match["project"] else {}
    return {**chosen, **of_role.node_selector}


def tolerations(spec: ImageSpec, role: Role) -> list[Document]:
    """Returns tolerations for nodes with the role's devices and for spot nodes, unless the spec has them already."""
    times = spec.job.scheduling
    made: list[Document] = [{"key": device, "operator": "Exists"} for device in limits(spec, role)]
    if times and times.strategy in _CAPACITY:
        made.append({"key": _CAPACITY[times.strategy], "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    if spec.platform == "linux/arm64":  # GKE taints its nodes with Arm processors
        made.append({"key": _ARCHITECTURE, "operator": "Equal", "value": "arm64", "effect": "NoSchedule"})
    own = {item.key for item in spec.roles[role].tolerations}
    return [item for item in made if item["key"] not in own]


def errors(spec: ImageSpec, role: Role) -> Iterator[FieldError]:
    """Finds faults in the role's TPU slice and its reservation."""
    of_role, field = spec.roles[role], f"roles.{role}"
    if of_role.reservation and not _RESERVATION.match(of_role.reservation):
        message = f"{of_role.reservation!r} is not a reservation: expected its name, or projects/P/reservations/NAME"
        yield FieldError(message, field=f"{field}.reservation")
    if spec.accelerator_of(role) is not Accelerator.TPU:
        return
    tpu = of_role.tpu
    label = _label(tpu) if tpu else None
    if tpu is None or tpu.topology is None:
        hint = f"{label} has {list_topologies(label)}" if label else "for example topology: 4x4"
        yield FieldError("expected a type and a topology", field=f"{field}.tpu", hint=hint)
    if tpu is None or (label and tpu.topology is None):
        return
    yield from _slice_errors(tpu, label, of_role.machine, field)
    found = slice_of(spec, role)
    if found and found.hosts > 1 and role is not Role.WORKER:
        message = f"a slice of {found.hosts} hosts needs as many replicas; there is one {role}"
        yield FieldError(message, field=field, hint="use workers instead: worker 0 is the chief")
    if of_role.count > 1 and not rules_of(spec.framework).SPANS_SLICES:
        message = f"{of_role.count}: {spec.framework.title} trains on one slice; the topology decides its size"
        yield FieldError(message, field=f"{field}.count")


def _slice_errors(tpu: Tpu, label: str | None, machine: str | None, field: str) -> Iterator[FieldError]:
    table, topology = read_labels(), str(tpu.topology)
    if label is None:
        types = [kind for row in table.values() for kind in row["types"]]
        message = f"{tpu.type!r} is not a TPU of GKE: expected {', '.join(types)}"
        yield FieldError(
            message, field=f"{field}.tpu.type", hint=nearest(re.sub(r"-\d+\Z", "", tpu.type).upper(), types)
        )
    elif not find_slices(label, topology):
        yield FieldError(f"{topology!r}: {label} has {list_topologies(label)}", field=f"{field}.tpu.topology")
    elif not find_slices(label, topology, machine):
        fitting = ", ".join(found.machine for found in find_slices(label, topology))
        yield FieldError(f"{machine!r} cannot form {label} {topology}: expected {fitting}", field=f"{field}.machine")
    if tpu.tf_version:
        yield FieldError("only the target ai-platform supports this key", field=f"{field}.tpu.tf_version")


def _label(tpu: Tpu) -> str | None:
    return next((label for label, row in read_labels().items() if tpu.type in {label, *row["types"]}), None)
