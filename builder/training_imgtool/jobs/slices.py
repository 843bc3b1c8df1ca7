"""TPU slices: the machine types that form a slice, the number of machines, and the chips of each machine. Pure.

The table is `data/machines/tpus.yaml`, with its sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from training_imgtool.jobs.yamlio import read_table

ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPU = "google.com/tpu"
_SHAPE = re.compile(r"[1-9][0-9]*(?:x[1-9][0-9]*){1,2}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A TPU slice.

    Attributes:
        label: GKE's name of the TPU.
        machine: the machine type of the hosts.
        hosts: the number of nodes.
        chips: the chips on each node.
    """

    label: str
    topology: str
    machine: str
    hosts: int
    chips: int


def read_labels() -> Mapping[str, Any]:
    """Maps GKE's names of TPUs to their names in a spec and their machine types."""
    table: Mapping[str, Any] = read_table("machines/tpus.yaml")["labels"]
    return table


def list_accelerators() -> frozenset[str]:
    """Returns GKE's names of TPUs, with those that no spec can have."""
    return frozenset((*read_labels(), *read_table("machines/tpus.yaml")["others"]))


def list_machines() -> frozenset[str]:
    """Returns the machine types that the table knows."""
    return frozenset(read_table("machines/tpus.yaml")["machines"])


def is_topology(text: str) -> bool:
    """Tells whether a text gives chips by dimension, such as 2x2 or 4x4x8."""
    return bool(_SHAPE.match(text))


def fits(machine: str, topology: str) -> bool:
    """Tells whether machines of a type can form a slice of the topology."""
    row = read_table("machines/tpus.yaml")["machines"][machine]
    sides = [int(side) for side in topology.split("x")] if is_topology(topology) else []
    if topology in row["topologies"]:
        return True
    is_cubic = len(sides) == 3 and all(side % 4 == 0 for side in sides)
    is_ordered = sides == sorted(sides) or not row.get("sorted")
    return is_cubic and is_ordered and prod(sides) // 64 <= row.get("cubes", 0)


def list_topologies(name: str) -> str:
    """Lists the topologies of a TPU, or of one machine type, for messages."""
    table = read_table("machines/tpus.yaml")
    machines = table["labels"][name]["machines"] if name in table["labels"] else [name]
    rows = [table["machines"][machine] for machine in machines]
    listed = sorted({topology for row in rows for topology in row["topologies"]}, key=_count)
    more = [f"or multiples of four in each dimension up to {row['cubes']} x 4x4x4" for row in rows if "cubes" in row]
    more = [f"{text}, the smallest first" if rows[0].get("sorted") else text for text in more]
    return ", ".join([*listed, *more])


def _count(topology: str) -> int:
    return prod(map(int, topology.split("x")))


def find_slices(label: str, topology: str, machine: str | None = None) -> tuple[Slice, ...]:
    """Returns the slices with this TPU and topology: one for each suitable machine type, or only that of `machine`."""
    table = read_table("machines/tpus.yaml")
    names = [name for name in table["labels"][label]["machines"] if machine in {None, name} and fits(name, topology)]
    total = _count(topology) if names else 0
    return tuple(
        Slice(label=label, topology=topology, machine=name, hosts=max(1, total // chips), chips=chips)
        for name in names
        for chips in (int(table["machines"][name]["chips"]),)
    )
