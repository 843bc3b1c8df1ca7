"""Containers on a Docker Engine and their network: the operations that `imgtool run` needs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.sanitize import join_lines, sanitize_line
from training_imgtool.make.engines.stream import Event

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.client import DockerApi

GONE = 404
_LONGEST_END = 1 << 20  # bytes
CONFLICT = 409
_TRIES = 5  # at most, to create a network with the subnet that the request names


class Change(IntEnum):
    """How a path in a container differs from the image, with the values of GET /containers/ID/changes."""

    MODIFIED = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHost:
    """The engine's machine: its CPUs, its bytes of memory, and whether containers can have GPUs and limits.

    `rootless` means that an ordinary user runs the engine, and that root in a container is this user.
    """

    cpus: int
    memory: int
    nvidia: bool
    limits_cpu: bool
    limits_memory: bool
    rootless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A private network. `addresses` is the subnet if containers may request addresses in the subnet."""

    id: str
    name: str
    addresses: ipaddress.IPv4Network | None

    def address(self, number: int) -> str | None:
        """Returns the address for the container `number` (from 0); None if the engine must choose a free address."""
        if self.addresses is None or number + 3 >= self.addresses.num_addresses:
            return None
        return str(self.addresses.network_address + 2 + number)  # .1 is the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container to make.

    Attributes:
        name: the container's name in the engine.
        image: a reference or ID that the engine has.
        hostname: the container's own host name: a DNS label.
        aliases: the names under which other containers of the network find this one.
        address: the container's address in the network, or None for any.
        command: arguments after the entry point; None for the image's own.
        entrypoint: an entry point in place of the image's.
        mounts: folders of the engine's machine, by their paths in the container.
        cpus: the most CPUs that the container may use; None for all.
        memory: the most bytes that the container may use; None for all.
        shared: the bytes of /dev/shm; None for the engine's default.
        gpus: the IDs or the number of the container's GPUs; empty or 0 for none.
        user: the user of the program, `UID:GID`; empty for the image's own.
    """

    name: str
    image: str
    hostname: str
    network: Network
    labels: Mapping[str, str]
    env: Mapping[str, str]
    aliases: tuple[str, ...]
    address: str | None
    command: tuple[str, ...] | None
    entrypoint: tuple[str, ...] | None
    mounts: Mapping[str, str]
    cpus: float | None
    memory: int | None
    gpus: tuple[str, ...] | int
    user: str
    shared: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a container ended.

    Attributes:
        exit_code: 128 and the number of a signal that killed it.
        out_of_memory: whether the kernel killed the container because memory ran out.
        fault: the engine's message, such as why the container did not start.
        finished: the time in seconds since 1970 by the engine's clock; 0 when the engine gives none.
    """

    exit_code: int
    out_of_memory: bool
    fault: str
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container or a network in the engine that has a label."""

    id: str
    name: str
    labels: Mapping[str, str]


class RefusedError(EngineUnavailableError):
    """The engine refused a request; the error has the engine's message and the status of its answer."""

    retryable = False

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Containers:
    """The containers of one engine. Thread-safe. Every method raises RefusedError when the engine refuses."""

    def __init__(self, api: DockerApi) -> None:
        self.api = api

    def machine(self) -> EngineHost:
        """Returns the CPUs, the memory and the GPUs of the engine's machine."""
        with self.api.ask("asking what the machine has") as client:
            info = client.info()
        return EngineHost(
            cpus=int(info.get("NCPU") or 1),
            memory=int(info.get("MemTotal") or 0),
            nvidia="nvidia" in (info.get("Runtimes") or {}),
            limits_cpu=bool(info.get("CpuCfsQuota")),
            limits_memory=bool(info.get("MemoryLimit")),
            rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
        )

    def image_id(self, name: str) -> str | None:
        """Returns the ID of an image; None if the engine does not have the image."""
        image = self.api.inspect(name)
        return str(image["Id"]) if image else None

    def create_network(self, name: str, labels: Mapping[str, str]) -> Network:
        """Creates a private network whose containers can request fixed addresses, to keep them after a restart.

        An engine allows such requests only if the request that created the network named the subnet. So this method
        lets the engine choose a subnet, and then creates the network again with that subnet.
        """
        chosen = self._create_network(name, labels, None)
        for _ in range(_TRIES):
            if chosen.addresses is None:
                break
            self.remove_network(chosen.id)
            try:
                return self._create_network(name, labels, chosen.addresses)
            except RefusedError:  # another program has taken the subnet meanwhile
                chosen = self._create_network(name, labels, None)
        return Network(id=chosen.id, name=chosen.name, addresses=None)

    def _create_network(self, name: str, labels: Mapping[str, str], subnet: ipaddress.IPv4Network | None) -> Network:
        pools = [{"Subnet": str(subnet)}] if subnet else []
        ipam = {"Driver": "default", "Config": pools} if pools else None
        with self.api.ask(f"making the network {name}", refused=make_refusal(f"the network {name}")) as client:
            made = client.create_network(name, driver="bridge", labels=dict(labels), ipam=ipam, check_duplicate=True)
            network = client.inspect_network(made["Id"])
        configs = (network.get("IPAM") or {}).get("Config") or []
        return Network(id=str(made["Id"]), name=name, addresses=_subnet(configs))

    def create(self, container: Container) -> str:
        """Makes a container, without starting it, and returns its ID."""
        with self.api.ask(f"making {container.name}", refused=make_refusal(container.name)) as client:
            endpoint = client.create_endpoint_config(aliases=list(container.aliases), ipv4_address=container.address)
            made = client.create_container(
                container.image,
                command=None if container.command is None else list(container.command),
                entrypoint=None if container.entrypoint is None else list(container.entrypoint),
                user=container.user or None,
                hostname=container.hostname,
                environment=dict(container.env),
                labels=dict(container.labels),
                name=container.name,
                host_config=_host_config(client, container),
                networking_config=client.create_networking_config({container.network.name: endpoint}),
                use_config_proxy=False,  # gRPC would send the cluster's own traffic through a proxy
            )
        return str(made["Id"])

    def start(self, container_id: str, name: str) -> None:
        """Starts a container; raises RefusedError with the engine's message when the container's program cannot run."""
        with self.api.ask(f"starting {name}", refused=make_refusal(name)) as client:
            client.start(container_id)

    def output(self, container_id: str, name: str) -> Iterator[bytes]:
        """Yields the container's output as it arrives, until the container ends."""

        def send(client: Any) -> Iterator[Event]:
            blocks = client.logs(container_id, stdout=True, stderr=True, stream=True, follow=True)
            return ({"data": block} for block in blocks)

        with self.api.stream(send, where=lambda: f"{name}: reading its output", refused=make_refusal(name)) as events:
            for event in events:
                yield event["data"]

    def last_output(self, container_id: str, name: str, lines: int, *, only_errors: bool = False) -> bytes:
        """Returns the last lines that a container printed (with `only_errors`, on stderr), at most 1 MiB."""
        output = bytearray()
        with self.api.ask(f"reading the end of {name}'s output", refused=make_refusal(name)) as client:
            blocks = client.logs(
                container_id, stdout=not only_errors, stderr=True, tail=lines, stream=True, follow=False
            )
            for block in blocks:
                output += block
                if len(output) > 2 * _LONGEST_END:
                    del output[:-_LONGEST_END]
        return bytes(output[-_LONGEST_END:])

    def wait(self, container_id: str, name: str) -> Ended:
        """Waits until the container has ended; raises RefusedError when somebody removes it."""

        def send(client: Any) -> list[Event]:
            return [client.wait(container_id)]

        with self.api.stream(send, where=lambda: f"{name}: waiting", refused=make_refusal(name)) as events:
            codes = [int(event["StatusCode"]) for event in events]
        state = self._state(container_id, name)
        if state.get("Dead") or state.get("Status") == "removing":  # still reported for a moment
            raise RefusedError(f"{name}: another program is removing its container", status=GONE)
        return _read_end(state, codes[0] if codes else -1)

    def ended(self, container_id: str, name: str) -> Ended | None:
        """Returns how a container ended, or None while it runs."""
        state = self._state(container_id, name)
        return None if state.get("Running") else _read_end(state, -1)

    def _state(self, container_id: str, name: str) -> dict[str, Any]:
        with self.api.ask(f"looking at {name}", refused=make_refusal(name)) as client:
            state: dict[str, Any] = client.inspect_container(container_id)["State"]
            return state

    def changed(self, container_id: str, name: str) -> tuple[str, ...]:
        """Lists the files and folders that a container's program has made or changed outside its mounts."""
        rows = self.changes(container_id, name)
        return tuple(sanitize_line(path) for path, kind in rows.items() if kind is not Change.DELETED)

    def changes(self, container_id: str, name: str) -> dict[str, Change]:
        """Maps each path that differs from the image to the kind of difference."""
        with self.api.ask(f"looking at {name}'s files", refused=make_refusal(name)) as client:
            rows = client.diff(container_id) or ()
        return {str(row["Path"]): Change(row["Kind"]) for row in rows}

    def put(self, container_id: str, name: str, archive: Iterator[bytes]) -> None:
        """Copies the files of a tar archive into a container, even one that does not run."""
        with self.api.ask(f"putting files into {name}", refused=make_refusal(name)) as client:
            client.put_archive(container_id, "/", b"".join(archive))

    def words(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the entry point and the default arguments of an image."""
        config = (self.api.inspect(image) or {}).get("Config") or {}
        return tuple(config.get("Entrypoint") or ()), tuple(config.get("Cmd") or ())

    def volumes(self, container_id: str, name: str) -> tuple[str, ...]:
        """Lists the volumes that the image declares. `changed` leaves these volumes out, and `remove` deletes them."""
        with self.api.ask(f"looking at {name}", refused=make_refusal(name)) as client:
            mounts = client.inspect_container(container_id).get("Mounts") or ()
        return tuple(sanitize_line(str(mount["Destination"])) for mount in mounts if mount["Type"] == "volume")

    def memory(self, container_id: str, name: str) -> Iterator[int]:
        """Yields the bytes that a running container uses, once a second until it is removed.

        The number of bytes does not include cached files, as in `docker stats`.
        """

        def send(client: Any) -> Iterator[Event]:
            events: Iterator[Event] = client.stats(container_id, stream=True, decode=True)
            return events

        with self.api.stream(send, where=lambda: f"{name}: reading its memory", refused=make_refusal(name)) as events:
            for event in events:
                memory = event.get("memory_stats") or {}
                details = memory.get("stats") or {}
                if "usage" in memory:
                    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
                    yield max(0, int(memory["usage"]) - int(cached))

    def execute(self, container_id: str, name: str, words: tuple[str, ...]) -> bytes:
        """Runs another program in a running container and returns what it writes to stdout."""
        with self.api.ask(f"asking {name}", refused=make_refusal(name)) as client:
            made = client.exec_create(container_id, list(words), stderr=False)
            return bytes(client.exec_start(made["Id"]))

    def signal(self, container_id: str, name: str) -> None:
        """Sends a signal, such as SIGTERM; does nothing if the container has ended."""
        with _tolerating(GONE, CONFLICT), self.api.ask(f"sending {name}", refused=make_refusal(name)) as client:
            client.kill(container_id, signal=name)

    def remove(self, container_id: str) -> None:
        """Kills and removes a container and its volumes; succeeds if the container is gone or being removed."""
        refused = make_refusal(container_id[:12])
        with _tolerating(GONE, CONFLICT), self.api.ask("removing a container", refused=refused) as client:
            client.remove_container(container_id, force=True, v=True)

    def remove_network(self, network_id: str) -> None:
        """Removes a network; succeeds if the network is gone."""
        with _tolerating(GONE), self.api.ask("removing a network", refused=make_refusal(network_id[:12])) as client:
            client.remove_network(network_id)

    def containers_with(self, label: str) -> tuple[Found, ...]:
        """Returns the containers, running or ended, with the label `NAME` or `NAME=VALUE`."""
        with self.api.ask("listing containers") as client:
            rows = client.containers(all=True, filters={"label": label})
        return tuple(
            Found(id=str(row["Id"]), name=str((row.get("Names") or ["/?"])[0]).lstrip("/"), labels=row["Labels"] or {})
            for row in rows
        )

    def networks_with(self, label: str) -> tuple[Found, ...]:
        """Returns the networks with the label `NAME` or `NAME=VALUE`."""
        with self.api.ask("listing networks") as client:
            rows = client.networks(filters={"label": label})
        return tuple(Found(id=str(row["Id"]), name=str(row["Name"]), labels=row["Labels"] or {}) for row in rows)


@contextmanager
def _tolerating(*statuses: int) -> Iterator[None]:
    """Ignores a RefusedError with one of these statuses."""
    try:
        yield
    except RefusedError as error:
        if error.status not in statuses:
            raise


def _read_end(state: Mapping[str, Any], code: int) -> Ended:
    return Ended(
        exit_code=int(state.get("ExitCode", code)),
        out_of_memory=bool(state.get("OOMKilled")),
        fault=sanitize_line(str(state.get("Error") or "")),
        finished=max(0.0, datetime.fromisoformat(state.get("FinishedAt") or "1970-01-01T00:00:00Z").timestamp()),
    )


def make_refusal(name: str) -> Callable[[str, int | None], RefusedError]:
    """Returns a function that makes a RefusedError about `name` from the engine's message and status."""

    def error(words: str, status: int | None) -> RefusedError:
        text = join_lines(words, limit=400)
        return RefusedError(f"{name}: the Docker Engine answered: {text}", status=status)

    return error


def _host_config(client: Any, container: Container) -> Any:
    limits: dict[str, Any] = {}
    if container.cpus is not None:
        limits["nano_cpus"] = int(container.cpus * 1e9)
    if container.memory is not None:
        limits["mem_limit"] = container.memory
    if container.shared is not None:
        limits["shm_size"] = container.shared
    if container.gpus:
        wanted = {"count": container.gpus} if isinstance(container.gpus, int) else {"device_ids": list(container.gpus)}
        limits["device_requests"] = [{"driver": "nvidia", "capabilities": [["gpu"]], **wanted}]
    return client.create_host_config(
        network_mode=container.network.name,
        mounts=[
            {"Type": "bind", "Source": folder, "Target": inside, "ReadOnly": False}
            for inside, folder in container.mounts.items()
        ],
        cap_drop=["ALL"],  # a training program needs none of root's capabilities
        security_opt=["no-new-privileges"],
        restart_policy={"Name": "no"},
        log_config={"type": "json-file", "config": {}},  # the engine's default driver may keep no output
        **limits,
    )


def _subnet(configs: list[dict[str, Any]]) -> ipaddress.IPv4Network | None:
    for config in configs:
        network = ipaddress.ip_network(config.get("Subnet") or "::/0", strict=False)
        if isinstance(network, ipaddress.IPv4Network):
            return network
    return None
