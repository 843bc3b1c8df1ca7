"""Runs a program in a short-lived container on a Docker Engine, for `imgtool verify`.

The container has no network, no privileges and a time limit. A label on the container contains the time at which the
limit ends, so that a later process can remove containers that a killed process left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.make.engines.docker.containers import Containers, RefusedError, make_refusal

if TYPE_CHECKING:
    from training_imgtool.make.engines.docker.client import DockerApi

UNTIL = "dev.imgtool.probe.until"  # seconds since 1970, after which any process may remove the container
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 30.0
_LAST_ERRORS = 5  # lines of stderr
_refuse = make_refusal("looking into the image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A program to run in an image.

    Attributes:
        image: a reference or ID that the engine has.
        command: the program and its arguments; the image's own entry point is not used.
        seconds: the time limit of the program.
        gpus: whether the program gets all GPUs of the machine.
    """

    image: str
    command: tuple[str, ...]
    seconds: float
    gpus: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a probe. `fault` is the engine's message if the program did not start, else None."""

    output: bytes = b""
    errors: str = ""  # the last lines of stderr
    fault: str | None = None
    late: bool = False


def run_probe(api: DockerApi, probe: Probe, *, now: Callable[[], float] = time.time) -> Answer:
    """Runs a program in a new container, and removes the container even after a failure.

    Raises EngineUnavailableError when the engine fails. If the program cannot start, the Answer has a fault.
    """
    containers = Containers(api)
    container = ""
    try:
        container = _create(api, probe, now() + probe.seconds + 2 * _GRACE_SECONDS)
        try:
            containers.start(container, "the probe")
        except RefusedError as error:
            return Answer(fault=error.message.partition("the Docker Engine says: ")[2])
        late = not _wait_for_end(containers, container, probe.seconds + _GRACE_SECONDS)
        if late:
            containers.signal(container, "SIGKILL")
        return Answer(output=_read_output(api, container), errors=_read_errors(containers, container), late=late)
    finally:
        if container:
            containers.remove(container)


def sweep(api: DockerApi, *, now: Callable[[], float] = time.time) -> int:
    """Removes the containers that killed processes left; returns their number."""
    containers = Containers(api)
    gone = 0
    for container in containers.containers_with(UNTIL):
        until = container.labels.get(UNTIL, "")
        if until.isascii() and until.isdigit() and int(until) < now():
            containers.remove(container.id)
            gone += 1
    return gone


def _create(api: DockerApi, probe: Probe, until: float) -> str:
    gpus = [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}] if probe.gpus else None
    with api.ask("making a container to look into the image", refused=_refuse) as client:
        made = client.create_container(
            probe.image,
            entrypoint=[probe.command[0]],
            command=list(probe.command[1:]),
            labels={UNTIL: str(int(until))},
            network_disabled=True,
            use_config_proxy=False,
            host_config=client.create_host_config(
                network_mode="none",
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                restart_policy={"Name": "no"},
                log_config={"type": "json-file", "config": {}},
                device_requests=gpus,
            ),
        )
    return str(made["Id"])


def _wait_for_end(containers: Containers, container: str, seconds: float) -> bool:
    """Waits until the container ends; returns whether it ended within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if containers.ended(container, "the probe") is not None:
            return True
        if containers.api.running.stopped.wait(_POLL_SECONDS):
            raise EngineUnavailableError("the check in a container of the image was stopped")
    return False


def _read_output(api: DockerApi, container: str) -> bytes:
    with api.ask("reading the probe's answer", refused=_refuse) as client:
        return bytes(client.logs(container, stdout=True, stderr=False))


def _read_errors(containers: Containers, container: str) -> str:
    text = b""
    with suppress(EngineUnavailableError):
        text = containers.last_output(container, "the probe", _LAST_ERRORS, only_errors=True)
    lines = text.decode("utf-8", "replace").splitlines()[-_LAST_ERRORS:]
    return "\n".join(sanitize_line(line, limit=300) for line in lines)
