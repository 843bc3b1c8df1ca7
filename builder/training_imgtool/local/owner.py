"""Labels containers with their run and with imgtool's process; removes containers whose process has ended."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.system import name_boot, name_process_space, start_of
from training_imgtool.base.threads import run_all

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.containers import Containers, Found

RUN = "dev.imgtool.run"
REPLICA = "dev.imgtool.replica"
_HOST = "dev.imgtool.host"
_BOOT = "dev.imgtool.boot"
_PID = "dev.imgtool.pid"
_STARTED = "dev.imgtool.started"
_TRIES, _PAUSE = 10, 0.2  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Identifies one process for good: process numbers repeat, but not with the same boot and start time.

    Attributes:
        host: the machine's name and its PID namespace, because the same number elsewhere means another process.
        boot: the kernel's ID of this boot.
        started: the start time of the process, in the system's own format.
    """

    host: str
    boot: str
    pid: int
    started: str

    def labels(self, run: str) -> dict[str, str]:
        """Returns the labels for each container and network of `run`."""
        return {RUN: run, _HOST: self.host, _BOOT: self.boot, _PID: str(self.pid), _STARTED: self.started}


def this_process() -> Owner:
    """Returns the identity of this process."""
    pid = os.getpid()
    host = f"{platform.node()} {name_process_space()}".strip()
    return Owner(host=host, boot=name_boot(), pid=pid, started=started(pid) or "")


def started(pid: int) -> str | None:
    """Returns the start time of a process from `base.system.start_of`; None if the process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return start_of(pid)


def is_gone(labels: Mapping[str, str], here: Owner, started_of: Callable[[int], str | None] = started) -> bool:
    """Tells whether the process that the labels identify has ended; False if this machine cannot find out."""
    if labels.get(_HOST) != here.host or not labels.get(_PID, "").isdigit():
        return False
    if labels.get(_BOOT) != here.boot:
        return True
    now = started_of(int(labels[_PID]))
    return now is None or (now != "" and labels.get(_STARTED, "") not in {"", now})


def sweep(containers: Containers, here: Owner) -> tuple[str, ...]:
    """Removes the containers and networks of runs whose process has ended; returns the sorted IDs of these runs."""
    left = [item for item in containers.containers_with(RUN) if is_gone(item.labels, here)]
    networks = [item for item in containers.networks_with(RUN) if is_gone(item.labels, here)]
    _remove(containers, left, networks)
    return tuple(sorted({item.labels[RUN] for item in (*left, *networks)}))


def remove_all(containers: Containers, run: str) -> None:
    """Removes a run's containers and networks until two searches find none, since the engine may still create some."""
    empty, label = 0, f"{RUN}={run}"
    for _ in range(_TRIES):
        left, networks = containers.containers_with(label), containers.networks_with(label)
        _remove(containers, left, networks)
        empty = 0 if left or networks else empty + 1
        if empty == 2:
            return
        time.sleep(_PAUSE)


def _remove(containers: Containers, left: Iterable[Found], networks: Iterable[Found]) -> None:
    run_all({item.id: partial(containers.remove, item.id) for item in left})
    for network in networks:
        containers.remove_network(network.id)
