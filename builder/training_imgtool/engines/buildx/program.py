"""The adapter of the program `docker buildx`: finds it, and gives it an environment.

buildx reads logins from `config.json` in DOCKER_CONFIG. A login that imgtool found elsewhere, such as a Google token,
reaches it in a `config.json` of its own. That is a link to a file without a name, which buildx inherits open: whatever
ends imgtool and buildx, SIGKILL included, no file with a login stays behind.
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

from training_imgtool.core.errors import EngineUnavailableError
from training_imgtool.core.reference import DOCKER_HUB, Login
from training_imgtool.core.settings import Settings

_PLUGIN = "docker-buildx"
_PLUGIN_FOLDERS = (  # docker/cli, `cli-plugins/manager/manager_unix.go`
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - for a file without a name
_SECONDS = 20.0
_HUB_SERVER = "https://index.docker.io/v1/"
_REFRESH_TOKEN = "<token>"  # noqa: S105 - the user name that means a refresh token


def find_program(settings: Settings) -> tuple[str, ...]:
    """Finds the words that start buildx: its plugin, from PATH or Docker's folders of plugins, else `docker buildx`.

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
        "buildx is not installed: no docker-buildx is in PATH or in Docker's folders of plugins",
        hint="install Docker's buildx plugin; a builder on another machine needs no Docker Engine here",
    )


def _has_buildx(docker: str, environ: Mapping[str, str]) -> bool:
    """Returns whether `docker` has the plugin; without it, `docker` takes buildx' options for its own, and errs."""
    command = [docker, "buildx", "version"]
    try:
        done = subprocess.run(command, env=dict(environ), capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@dataclass(frozen=True, slots=True)
class Environment:
    """What a process of buildx gets: its variables, and the file descriptors that it inherits."""

    variables: Mapping[str, str]
    descriptors: tuple[int, ...] = ()


@contextmanager
def open_environment(settings: Settings, logins: Mapping[str, Login]) -> Iterator[Environment]:
    """Opens the environment of a buildx that logs in at registry hosts with `logins`, and else as Docker does."""
    variables = {
        **settings.environ,
        "BUILDX_CONFIG": settings.environ.get("BUILDX_CONFIG") or str(settings.docker_config.absolute() / "buildx"),
        "BUILDX_METADATA_PROVENANCE": "disabled",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }
    if not logins:
        yield Environment(variables)
        return
    original = settings.docker_config.absolute()
    in_memory = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="imgtool-buildx-") as folder,
        tempfile.TemporaryFile(dir=in_memory) as config,
    ):
        config.write(json.dumps(_config(original, logins)).encode())
        config.seek(0)
        _link(Path(folder), original, config.fileno())
        yield Environment({**variables, "DOCKER_CONFIG": folder}, (config.fileno(),))


def _config(original: Path, logins: Mapping[str, Login]) -> dict[str, Any]:
    """Returns the user's config.json, with the logins."""
    document: dict[str, Any] = {}
    try:
        read = json.loads((original / "config.json").read_text())
        document = read if isinstance(read, dict) else {}
    except (OSError, ValueError):
        document = {}
    document.pop("credsStore", None)  # would win over `auths`
    helpers = document.get("credHelpers")
    if isinstance(helpers, dict):
        document["credHelpers"] = {host: helper for host, helper in helpers.items() if host not in logins}
    auths = document.get("auths")
    document["auths"] = {**(auths if isinstance(auths, dict) else {}), **dict(map(_auth, logins.items()))}
    return document


def _link(folder: Path, original: Path, descriptor: int) -> None:
    """Makes a folder for DOCKER_CONFIG: config.json is the open file, everything else the user's own."""
    (folder / "config.json").symlink_to(f"/dev/fd/{descriptor}")
    for entry in original.iterdir() if original.is_dir() else ():
        if entry.name != "config.json":
            (folder / entry.name).symlink_to(entry)


def _auth(item: tuple[str, Login]) -> tuple[str, dict[str, str]]:
    host, login = item
    server = _HUB_SERVER if host == DOCKER_HUB else host
    if login.username == _REFRESH_TOKEN:
        return server, {"identitytoken": login.password}
    return server, {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}
