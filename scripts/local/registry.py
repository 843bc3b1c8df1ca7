"""A registry on 127.0.0.1: the one that answers, or a docker-registry that is started here."""

from __future__ import annotations

import http.client
import json
import os
import shutil

from local import machine
from local.machine import UnavailableError

_PORT = int(os.environ.get("IMGTOOL_SERVICES_PORT", "5000"))
_LOG = machine.STATE / "registry.log"
_DATA = machine.STATE / "registry"
_PATIENCE = 20.0  # seconds until a fresh registry answers


def answers(address: str) -> bool:
    """Whether a registry at `HOST:PORT` answers without asking for credentials."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/v2/")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status == http.HTTPStatus.OK and answer.headers.get("Docker-Distribution-Api-Version", "") != ""


def address() -> str | None:
    """Where the registry of the last `up` is, if it still answers."""
    last = machine.read_state().get("registry")
    return last if isinstance(last, str) and answers(last) else None


def up() -> str:
    """Makes sure that a registry answers; returns its address. Raises UnavailableError."""
    for candidate in (address(), f"127.0.0.1:{_PORT}"):
        if candidate and answers(candidate):
            machine.write_state(registry=candidate)
            return candidate
    program = machine.need("docker-registry", "docker-registry")
    for port in (_PORT, machine.free_port()):
        chosen = f"127.0.0.1:{port}"
        if answers(chosen):  # the package's own service came up
            machine.write_state(registry=chosen)
            return chosen
        pid = machine.start([program, "serve", str(_configuration(chosen))], _LOG)
        if machine.wait_for(lambda where=chosen: answers(where), pid, _PATIENCE):  # type: ignore[misc]
            machine.write_state(registry=chosen, registry_process=pid)
            return chosen
        machine.stop(pid, "docker-registry")
    raise UnavailableError(f"docker-registry does not run here: {machine.last_line(_LOG)}")


def _configuration(chosen: str) -> str:
    _DATA.mkdir(parents=True, exist_ok=True)
    path = machine.STATE / "registry.yml"
    configuration = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(_DATA)}, "delete": {"enabled": True}},
        "http": {"addr": chosen},
    }
    path.write_text(json.dumps(configuration, indent=1) + "\n")  # JSON is YAML
    return str(path)


def down() -> bool:
    """Stops the registry that `up` started and removes what it held; False when it started none."""
    pid = machine.read_state().get("registry_process")
    if isinstance(pid, int):
        machine.stop(pid, "docker-registry")
        shutil.rmtree(_DATA, ignore_errors=True)
    machine.write_state(registry=None, registry_process=None)
    return isinstance(pid, int)
