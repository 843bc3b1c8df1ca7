"""Containers, networks and how they end: the values that an engine takes and returns for a cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the engine's machine has: CPUs, bytes of memory, and whether containers can have GPUs and limits."""

    cpus: int
    memory: int
    nvidia: bool
    limits_cpu: bool
    limits_memory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A private network. `addresses` is its subnet when containers may choose their address in it."""

    id: str
    name: str
    addresses: ipaddress.IPv4Network | None

    def address(self, number: int) -> str | None:
        """Returns the address of the container `number` (from 0), or None to take whichever is free."""
        if self.addresses is None or number + 3 >= self.addresses.num_addresses:
            return None
        return str(self.addresses.network_address + 2 + number)  # .1 is the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container to make.

    Attributes:
        name: its name in the engine.
        image: a reference or ID that the engine has.
        hostname: the container's own host name: a DNS label.
        aliases: the names under which others in the network find it.
        address: its address in the network, or None for any.
        command: arguments behind the entry point; None for the image's own.
        entrypoint: instead of the image's.
        mounts: folders of the engine's machine, by where they appear in the container.
        cpus: how many CPUs it may use at most; None for all.
        memory: how many bytes it may use at most; None for all.
        gpus: IDs of the GPUs that it gets, or how many; none when empty or 0.
    """

    name: str
    image: str
    hostname: str
    network: Network
    labels: Mapping[str, str]
    env: Mapping[str, str]
    aliases: tuple[str, ...] = ()
    address: str | None = None
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    mounts: Mapping[str, str]
    cpus: float | None = None
    memory: int | None = None
    gpus: tuple[str, ...] | int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a container ended.

    Attributes:
        exit_code: 128 and the number of a signal that killed it.
        out_of_memory: whether the kernel killed it for that.
        fault: the engine's own word, such as why it did not start.
        finished: when, in seconds since 1970 by the engine's clock; 0 when the engine does not say.
    """

    exit_code: int
    out_of_memory: bool
    fault: str
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something in the engine that carries a label."""

    id: str
    name: str
    labels: Mapping[str, str]
