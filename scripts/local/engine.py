"""A Docker Engine: the one that answers, or one that is started here."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path

from local import machine
from local.machine import UnavailableError

_SOCKET = "/var/run/docker.sock"
_LOG = machine.STATE / "dockerd.log"
_PATIENCE = 60.0  # seconds until a fresh Engine answers
# Plain first. In a container the kernel may refuse overlay mounts or packet filters; then less is asked for.
_ATTEMPTS: tuple[tuple[str, ...], ...] = ((), ("--storage-driver=vfs", "--iptables=false", "--ip6tables=false"))


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def version() -> str | None:
    """The version of the Engine that answers where DOCKER_HOST says (the default socket without it), or None."""
    host = os.environ.get("DOCKER_HOST") or f"unix://{_SOCKET}"
    scheme, _, address = host.partition("://")
    connection: http.client.HTTPConnection
    if scheme == "unix":
        connection = _Connection(address)
    elif scheme in {"tcp", "http"}:
        connection = http.client.HTTPConnection(address, timeout=10)
    else:
        return None
    try:
        connection.request("GET", "/version")
        answer = connection.getresponse()
        document = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return str(document.get("Version", "unknown")) if answer.status == http.HTTPStatus.OK else None


def up() -> str:
    """Makes sure that an Engine answers; returns what to tell the user. Raises UnavailableError."""
    if running := version():
        return f"Docker Engine {running} answers"
    if os.environ.get("DOCKER_HOST"):
        raise UnavailableError("DOCKER_HOST is set and nothing answers there; unset it or start that Engine")
    dockerd = machine.need("dockerd", "docker.io")
    if os.geteuid() != 0:
        raise UnavailableError("nothing answers on the default socket, and only root can start dockerd")
    for options in _ATTEMPTS:
        pid = machine.start([dockerd, *options], _LOG)
        machine.write_state(engine=pid)
        if machine.wait_for(lambda: version() is not None, pid, _PATIENCE):
            return f"Docker Engine {version()} started"
        machine.stop(pid, "dockerd")
        machine.write_state(engine=None)
        Path("/var/run/docker.pid").unlink(missing_ok=True)
    raise UnavailableError(f"dockerd does not run here: {machine.last_line(_LOG)} (all of it in .services/dockerd.log)")


def down() -> bool:
    """Stops the Engine that `up` started; False when it started none."""
    pid = machine.read_state().get("engine")
    if isinstance(pid, int):
        machine.stop(pid, "dockerd")
    machine.write_state(engine=None)
    return isinstance(pid, int)
