"""Creates and starts the containers of one run, in the run's network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from training_imgtool.base.errors import EngineUnavailableError, VerificationError
from training_imgtool.jobs.kubernetes import shares_memory
from training_imgtool.local.owner import REPLICA
from training_imgtool.make.engines.docker.containers import Container, Network, RefusedError

if TYPE_CHECKING:
    from training_imgtool.local.ready import Ready
    from training_imgtool.local.replicas import Replica
    from training_imgtool.make.engines.docker.containers import Containers

_SHARED = 2 << 30  # bytes of /dev/shm if this kernel limits no memory
_HOME = "/tmp"  # noqa: S108 - in the container, whose root folder is not the user's


class ReplicaRefusedError(VerificationError):
    """The engine refuses to make or start a replica's container."""

    def __init__(self, name: str, error: RefusedError) -> None:
        super().__init__(str(error))
        self.name = name


class Launcher:
    """Creates and starts the containers of one run.

    Attributes:
        name: the network's name; the containers' names begin with it.
    """

    def __init__(self, ready: Ready, containers: Containers) -> None:
        self.name = f"imgtool-{ready.spec.name}-{ready.run}"
        self._ready = ready
        self._containers = containers
        self._numbers = {replica.name: number for number, replica in enumerate(ready.cluster.replicas)}
        self._network: Network | None = None

    def make_network(self) -> None:
        """Creates the network; raises EngineUnavailableError if the engine has no free subnet."""
        try:
            self._network = self._containers.create_network(self.name, self._ready.owner.labels(self._ready.run))
        except RefusedError as error:
            hint = "`docker network prune` removes the networks that no container uses"
            raise EngineUnavailableError(str(error), hint=hint) from error

    def create(self, replica: Replica) -> str:
        """Creates a replica's container with its fixed address; raises ReplicaRefusedError if the engine refuses."""
        if self._network is None:
            raise RuntimeError("create before make_network")
        try:
            return self._containers.create(self._container(replica, self._network))
        except RefusedError as error:
            raise ReplicaRefusedError(replica.name, error) from error

    def create_look(self, replica: Replica, number: int, entrypoint: tuple[str, ...], words: tuple[str, ...]) -> str:
        """Creates a container that runs `entrypoint`, in place of the replica's program, in the replica's image."""
        if self._network is None:
            raise RuntimeError("create_look before make_network")
        container = replace(
            self._container(replica, self._network),
            name=f"{self.name}-look-{number}",
            hostname=f"look-{number}",
            aliases=(),
            address=self._network.address(len(self._numbers) + number),  # any address except those of replicas
            entrypoint=entrypoint,
            command=words,
        )
        return self._containers.create(container)

    def start(self, container_id: str, name: str) -> None:
        """Starts a container; raises ReplicaRefusedError if the engine refuses."""
        try:
            self._containers.start(container_id, name)
        except RefusedError as error:
            raise ReplicaRefusedError(name, error) from error

    def _container(self, replica: Replica, network: Network) -> Container:
        ready = self._ready
        share = ready.shares[replica.name]
        return Container(
            name=f"{self.name}-{replica.name}",
            image=replica.image,
            hostname=replica.hostname,
            network=network,
            labels={**ready.owner.labels(ready.run), REPLICA: replica.name},
            env={
                **({"HOME": _HOME} if ready.user and not ready.names_home(replica.role) else {}),
                **replica.env,
                **ready.secrets,
            },
            aliases=tuple(dict.fromkeys((replica.host, replica.hostname))),
            address=network.address(self._numbers[replica.name]),
            command=replica.args,
            entrypoint=replica.command,
            mounts=dict.fromkeys(ready.cluster.mounts, str(ready.job_dir)),
            cpus=share.cpus,
            memory=share.memory,
            gpus=share.gpus,
            user=ready.user,
            shared=(share.memory or _SHARED) if shares_memory(ready.spec) else None,
        )
