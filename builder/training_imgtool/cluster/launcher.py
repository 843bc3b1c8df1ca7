"""Makes and starts the containers of a run in a network of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_imgtool.cluster.owner import REPLICA
from training_imgtool.core.errors import EngineUnavailableError, VerificationError
from training_imgtool.engines.containers import Container, Network
from training_imgtool.engines.docker.containers import RefusedError

if TYPE_CHECKING:
    from training_imgtool.cluster.replicas import Replica
    from training_imgtool.cluster.run import Ready
    from training_imgtool.engines.docker.containers import Containers


class ReplicaRefusedError(VerificationError):
    """The engine refuses to make or start a replica."""

    def __init__(self, name: str, error: RefusedError) -> None:
        super().__init__(str(error))
        self.name = name


class Launcher:
    """The containers of one run; `name` is that of their network, and what their own names begin with."""

    def __init__(self, ready: Ready, containers: Containers) -> None:
        self.name = f"imgtool-{ready.spec.name}-{ready.run}"
        self._ready = ready
        self._containers = containers
        self._numbers = {replica.name: number for number, replica in enumerate(ready.cluster.replicas)}
        self._network: Network | None = None

    def make_network(self) -> None:
        """Makes the network; raises EngineUnavailableError when the engine has no subnet left."""
        try:
            self._network = self._containers.create_network(self.name, self._ready.owner.labels(self._ready.run))
        except RefusedError as error:
            hint = "docker network prune removes the networks that no container uses"
            raise EngineUnavailableError(str(error), hint=hint) from error

    def create(self, replica: Replica) -> str:
        """Makes a replica's container, with the same address each time; raises ReplicaRefusedError."""
        if self._network is None:
            raise RuntimeError("create before make_network")
        try:
            return self._containers.create(self._container(replica, self._network))
        except RefusedError as error:
            raise ReplicaRefusedError(replica.name, error) from error

    def start(self, container_id: str, name: str) -> None:
        """Starts a container; raises ReplicaRefusedError."""
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
            env=replica.env,
            aliases=tuple(dict.fromkeys((replica.host, replica.hostname))),
            address=network.address(self._numbers[replica.name]),
            command=replica.args,
            entrypoint=replica.command,
            mounts=dict.fromkeys(ready.cluster.mounts, str(ready.job_dir)),
            cpus=share.cpus,
            memory=share.memory,
            gpus=share.gpus,
        )
