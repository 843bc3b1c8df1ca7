"""Divides the machine's CPUs, memory and GPUs among the replicas, and reduces requests that exceed them.

imgtool reads the size of a machine type from the type's name. The GB per CPU are from Compute Engine's pages on
machine families.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training_imgtool.jobs.model import quantity
from training_imgtool.model.spec import RoleSpec

_USABLE = 0.85  # of the machine's memory, because the engine, imgtool and the user need some too
_LEAST = 64 << 20
_GIB = 1 << 30
_MACHINE = re.compile(r"(?P<family>[a-z]\d[a-z]?)-(?P<kind>standard|highmem|highcpu)-(?P<cpus>\d{1,3})\Z")
_GB_PER_CPU = {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0}
_GB_PER_CPU_N1 = {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The resources that the spec requests for one replica; None if the spec sets no value."""

    cpus: float | None = None
    memory: int | None = None
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a replica gets: CPUs (None for all), bytes of memory (None for no limit), GPUs (their IDs, or how many)."""

    cpus: float | None
    memory: int | None
    gpus: tuple[str, ...] | int


def request_of(role: RoleSpec) -> Request:
    """Returns what each replica of a role requests: the role's `cpus` and `memory`, or those of its machine type."""
    cpus, memory = machine_size(role.machine)
    own_cpus, own_memory = quantity(role.cpus), quantity(role.memory)
    return Request(
        cpus=cpus if own_cpus is None else own_cpus,
        memory=memory if own_memory is None else int(own_memory),
        gpus=role.gpus.count if role.gpus else 0,
    )


def machine_size(machine: str | None) -> tuple[float | None, int | None]:
    """Returns CPUs and bytes of a machine type such as `n1-standard-4`; (None, None) if the name states no size."""
    match = _MACHINE.match(machine or "")
    if match is None:
        return None, None
    ratio = (_GB_PER_CPU_N1 if match["family"] == "n1" else _GB_PER_CPU)[match["kind"]]
    return float(match["cpus"]), int(int(match["cpus"]) * ratio * _GIB)


def divide_resources(
    requests: Mapping[str, Request], *, cpus: int, memory: int, gpus: Sequence[str] | None
) -> tuple[dict[str, Share], tuple[str, ...]]:
    """Divides a machine's resources; returns each replica's share by the replica's name, and notes for the user.

    Args:
        requests: the request of each replica, by name.
        cpus: the machine's CPUs. Each replica gets as many as it asks for, so replicas may compete for them.
        memory: the machine's bytes. Larger requests are cut in proportion, because replicas cannot compete for memory.
        gpus: the IDs of the machine's GPUs; None if the machine has GPUs with unknown IDs.
    """
    usable = memory * _USABLE
    even = usable / max(1, len(requests))
    sizes = {name: float(request.memory or even) for name, request in requests.items()}
    factor = min(1.0, usable / sum(sizes.values())) if memory and sizes else 1.0
    cards = _cards(requests, gpus)
    granted = {
        name: Share(
            cpus=request.cpus if request.cpus is not None and request.cpus < cpus else None,
            memory=max(_LEAST, int(sizes[name] * factor)) if memory else None,
            gpus=cards[name],
        )
        for name, request in requests.items()
    }
    return granted, tuple(_notes(requests, granted, factor, gpus))


def _cards(requests: Mapping[str, Request], gpus: Sequence[str] | None) -> dict[str, tuple[str, ...] | int]:
    """Assigns GPUs in turn, so that replicas share a GPU only if the machine has too few GPUs."""
    if gpus is None:
        return {name: request.gpus for name, request in requests.items()}
    dealt: dict[str, tuple[str, ...] | int] = {}
    used = 0
    for name, request in requests.items():
        count = min(request.gpus, len(gpus))
        dealt[name] = tuple(gpus[(used + number) % len(gpus)] for number in range(count))
        used += count
    return dealt


def _notes(
    requests: Mapping[str, Request], granted: Mapping[str, Share], factor: float, gpus: Sequence[str] | None
) -> list[str]:
    notes = []
    if factor < 1:
        cut = {
            f"{share.memory / _GIB:.1f} GiB for {name} ({requests[name].memory / _GIB:.1f} asked)": None  # type: ignore[operator]
            for name, share in granted.items()
            if share.memory is not None and requests[name].memory
        }
        notes.append(f"memory limits are cut to fit this machine: {', '.join(cut)}")
    cards = sum(request.gpus for request in requests.values())
    if gpus is not None and cards > len(gpus):
        what = "run on the CPU" if not gpus else f"share {len(gpus)}"
        notes.append(f"the replicas ask for {cards} GPUs and this machine has {len(gpus)}: they {what}")
    return notes
