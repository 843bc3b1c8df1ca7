"""The adapter for the program `docker buildx`: finds the program, and sets its environment variables.

buildx reads logins from `config.json` in DOCKER_CONFIG. For a login from another source, such as a Google token,
imgtool writes a separate `config.json`. That file is in memory if the system has a folder for such files.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.reference import DOCKER_HUB, Login
from training_imgtool.base.sanitize import join_lines
from training_imgtool.base.settings import Settings
from training_imgtool.base.system import memory_folder

_PLUGIN = "docker-buildx"
_PLUGIN_FOLDERS = (  # docker/cli, `cli-plugins/manager/manager_unix.go`
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)
_HUB_SERVER = "https://index.docker.io/v1/"
_REFRESH_TOKEN = "<token>"  # noqa: S105 - the user name that means a refresh token
_SECONDS = 30.0  # buildx gives a builder 20 s


def find_program(settings: Settings) -> tuple[str, ...]:
    """Finds the command that starts buildx: its plugin in PATH or in Docker's plugin folders, else `docker buildx`.

    Raises EngineUnavailableError when this machine has neither.
    """
    path = settings.environ.get("PATH", "")
    if program := shutil.which(_PLUGIN, path=path):
        return (program,)
    for folder in (settings.docker_config / "cli-plugins", *map(Path, _PLUGIN_FOLDERS)):
        if program := shutil.which(str(folder / _PLUGIN)):
            return (program,)
    if (program := shutil.which("docker", path=path)) and _has_buildx(program, settings.environ):
        return (program, "buildx")
    raise EngineUnavailableError(
        "buildx is not installed: no docker-buildx is in PATH or in Docker's plugin folders",
        hint="install Docker's buildx plugin; a builder on another machine needs no Docker Engine here",
    )


def _has_buildx(docker: str, environ: Mapping[str, str]) -> bool:
    """Returns whether `docker` has the plugin; without the plugin, `docker` rejects the options of buildx."""
    command = [docker, "buildx", "version"]
    try:
        done = subprocess.run(command, env=dict(environ), capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@contextmanager
def open_environment(settings: Settings, logins: Mapping[str, Login]) -> Iterator[Mapping[str, str]]:
    """Yields environment variables that make buildx use `logins` for their hosts, and Docker's logins otherwise."""
    variables = {
        **settings.environ,
        "BUILDX_CONFIG": settings.environ.get("BUILDX_CONFIG") or str(settings.docker_config.absolute() / "buildx"),
        "BUILDX_METADATA_PROVENANCE": "disabled",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }
    variables.pop("SOURCE_DATE_EPOCH", None)  # buildx would pass it on, also where no key contains it
    if not logins:
        yield variables
        return
    original = settings.docker_config.absolute()
    with tempfile.TemporaryDirectory(prefix="imgtool-buildx-", dir=memory_folder()) as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_config(original, logins)))
        for entry in original.iterdir() if original.is_dir() else ():
            if entry.name != "config.json":
                (Path(folder) / entry.name).symlink_to(entry)
        yield {**variables, "DOCKER_CONFIG": folder}


def _config(original: Path, logins: Mapping[str, Login]) -> dict[str, Any]:
    """Returns the content of the user's config.json, with `logins` added."""
    document: dict[str, Any] = {}
    try:
        read = json.loads((original / "config.json").read_text())
        document = read if isinstance(read, dict) else {}
    except (OSError, ValueError):
        document = {}
    document.pop("credsStore", None)  # a helper would take precedence over `auths`
    helpers = document.get("credHelpers")
    if isinstance(helpers, dict):
        document["credHelpers"] = {host: helper for host, helper in helpers.items() if host not in logins}
    auths = document.get("auths")
    document["auths"] = {**(auths if isinstance(auths, dict) else {}), **dict(map(_auth, logins.items()))}
    return document


def _auth(item: tuple[str, Login]) -> tuple[str, dict[str, str]]:
    host, login = item
    server = _HUB_SERVER if host == DOCKER_HUB else host
    if login.username == _REFRESH_TOKEN:
        return server, {"identitytoken": login.password}
    return server, {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderInstance:
    """One builder.

    Attributes:
        name: the value for `--builder`.
        driver: docker, docker-container, kubernetes, remote or cloud; empty if buildx does not report it.
        current: whether buildx uses this builder when the command names none.
        endpoints: the addresses of the builder's nodes.
        running: whether a node of the builder runs.
        error: why no node runs, in buildx's words; empty when buildx gives no reason.
    """

    name: str
    driver: str
    current: bool
    endpoints: tuple[str, ...]
    running: bool
    error: str

    def as_data(self) -> dict[str, Any]:
        """Returns the builder as plain data."""
        return {
            "name": self.name,
            "driver": self.driver,
            "current": self.current,
            "endpoints": list(self.endpoints),
            "running": self.running,
            "error": self.error or None,
        }


def list_builders(settings: Settings) -> tuple[BuilderInstance, ...]:
    """Asks buildx for its builders; raises EngineUnavailableError when buildx is missing or fails."""
    program = find_program(settings)
    with open_environment(settings, {}) as environment:
        try:
            done = subprocess.run(
                [*program, "ls", "--format", "json"],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineUnavailableError(f"{' '.join(program)} ls: {error}") from error
    if done.returncode:
        words = join_lines(done.stderr) or f"ended with status {done.returncode}"
        raise EngineUnavailableError(f"{' '.join(program)} ls: {words}", hint="install buildx 0.13 or newer")
    return tuple(_builder(line) for line in done.stdout.splitlines() if line.startswith("{"))


def _builder(line: str) -> BuilderInstance:
    """Reads one line of `buildx ls --format json`; raises EngineUnavailableError if the line is not a builder."""
    try:
        document = json.loads(line)
        nodes = [node for node in document.get("Nodes") or () if isinstance(node, dict)]
        errors = [str(error) for error in (document.get("Err"), *(node.get("Err") for node in nodes)) if error]
        return BuilderInstance(
            name=str(document["Name"]),
            driver=str(document.get("Driver") or ""),
            current=bool(document.get("Current")),
            endpoints=tuple(str(node["Endpoint"]) for node in nodes if node.get("Endpoint")),
            running=any(node.get("Status") == "running" for node in nodes),
            error=join_lines(errors[0]) if errors else "",
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EngineUnavailableError(f"buildx ls answered {join_lines(line)!r}, which is not a builder") from error
