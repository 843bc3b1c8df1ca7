"""The adapter of the program `docker buildx`: finds it, and gives it an environment.

buildx reads logins from `config.json` in DOCKER_CONFIG. A login that imgtool found elsewhere, such as a Google token,
reaches it in a `config.json` of its own, in a folder that only this user can read and that exists while buildx runs.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there, mode 700
_SECONDS = 20.0
_HUB_SERVER = "https://index.docker.io/v1/"
_REFRESH_TOKEN = "<token>"  # noqa: S105 - the user name that means a refresh token


def find_program(settings: Settings) -> tuple[str, ...]:
    """The words that start buildx: its plugin, from PATH or Docker's folders of plugins, else `docker buildx`.

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
    """Whether the program `docker` has the plugin; one without it takes buildx' options for its own, and errs."""
    command = [docker, "buildx", "version"]
    try:
        done = subprocess.run(command, env=dict(environ), capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@contextmanager
def open_environment(settings: Settings, logins: Mapping[str, Login]) -> Iterator[dict[str, str]]:
    """The environment of a buildx that logs in at registry hosts with `logins`, and else as Docker does."""
    environ = {
        **settings.environ,
        "BUILDX_CONFIG": settings.environ.get("BUILDX_CONFIG") or str(settings.docker_config.absolute() / "buildx"),
        "BUILDX_METADATA_PROVENANCE": "disabled",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }
    if not logins:
        yield environ
        return
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="imgtool-buildx-", dir=place) as folder:
        _write_config(settings.docker_config.absolute(), Path(folder), logins)
        yield {**environ, "DOCKER_CONFIG": folder}


def _write_config(original: Path, folder: Path, logins: Mapping[str, Login]) -> None:
    """Writes a config.json with the logins; everything else in the folder is the user's own."""
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
    (folder / "config.json").write_text(json.dumps(document))
    for entry in original.iterdir() if original.is_dir() else ():
        if entry.name != "config.json":
            (folder / entry.name).symlink_to(entry)


def _auth(item: tuple[str, Login]) -> tuple[str, dict[str, str]]:
    host, login = item
    server = _HUB_SERVER if host == DOCKER_HUB else host
    if login.username == _REFRESH_TOKEN:
        return server, {"identitytoken": login.password}
    return server, {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}
