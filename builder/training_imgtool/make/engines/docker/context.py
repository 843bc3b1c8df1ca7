"""Finds the Docker Engine to connect to: DOCKER_HOST, else the Docker context, else the default socket.

The order is that of the `docker` command (docker/cli, `cli/command/cli.go`, `resolveContextName`): DOCKER_HOST,
DOCKER_CONTEXT, `currentContext` of config.json. A context is in `contexts/meta/ID/meta.json`, and its certificates are
in `contexts/tls/ID/docker/{ca,cert,key}.pem`; ID is the sha256 of the context's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from training_imgtool.base.errors import EngineUnavailableError
from training_imgtool.base.settings import Settings

DEFAULT_HOST = "unix:///var/run/docker.sock"
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of an engine.

    Attributes:
        url: `unix:///PATH` or `tcp://HOST:PORT`.
        source: the setting that named the address, for messages: `DOCKER_HOST`, `Docker context x`, `the default`.
        tls: whether a tcp endpoint speaks TLS; `verify` tells whether to check the engine's certificate.
    """

    url: str
    source: str
    tls: bool = False
    verify: bool = True
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __str__(self) -> str:
        return self.url


def find_endpoint(settings: Settings) -> Endpoint:
    """Finds the engine that the settings name; raises EngineUnavailableError that names a wrong setting."""
    config = _config(settings.docker_config / "config.json")
    if settings.docker_host:
        return _from_host(settings.docker_host, settings)
    current = config.get("currentContext")
    name = settings.docker_context or (current if isinstance(current, str) else None)
    if not name or name == "default":
        return Endpoint(url=DEFAULT_HOST, source="the default")
    source = "DOCKER_CONTEXT" if settings.docker_context else "currentContext of config.json"
    return _from_context(name, source, settings.docker_config / "contexts")


def _from_host(host: str, settings: Settings) -> Endpoint:
    url = checked_host(host, "DOCKER_HOST")
    verify = bool(settings.environ.get("DOCKER_TLS_VERIFY"))
    if not url.startswith("tcp://") or not (verify or settings.environ.get("DOCKER_TLS")):
        return Endpoint(url=url, source="DOCKER_HOST")
    folder = Path(settings.environ.get("DOCKER_CERT_PATH") or settings.docker_config)
    certificates = _certificates(folder)
    if verify and "ca" not in certificates:
        raise EngineUnavailableError(
            f"DOCKER_TLS_VERIFY is set, and {folder} has no ca.pem",
            hint="point DOCKER_CERT_PATH at the folder with ca.pem, cert.pem and key.pem",
        )
    return Endpoint(url=url, source="DOCKER_HOST", tls=True, verify=verify, **certificates)


def _from_context(name: str, source: str, contexts: Path) -> Endpoint:
    folder = hashlib.sha256(name.encode()).hexdigest()
    meta = contexts / "meta" / folder / "meta.json"
    try:
        endpoint = _json(meta)["Endpoints"]["docker"]
        host = endpoint["Host"]
        skip_verify = bool(endpoint.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise EngineUnavailableError(
            f"Docker context {name!r} (from {source}) does not exist: {meta} is not there",
            hint="`docker context ls` lists the contexts; `docker context use default` returns to the default",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineUnavailableError(
            f"Docker context {name!r} (from {source}): {meta} cannot be used: {type(error).__name__}: {error}",
            hint="`docker context inspect` shows it; `docker context use default` returns to the default",
        ) from error
    url = checked_host(host, f"Docker context {name!r}")
    certificates = _certificates(contexts / "tls" / folder / "docker")
    return Endpoint(
        url=url,
        source=f"Docker context {name!r}",
        tls=url.startswith("tcp://") and bool(certificates),
        verify=not skip_verify,
        **certificates,
    )


def checked_host(host: object, source: str) -> str:
    """Returns `host` if imgtool supports this kind of address; raises EngineUnavailableError otherwise."""
    expected = "expected unix:///PATH or tcp://HOST:PORT"
    if not isinstance(host, str):
        raise EngineUnavailableError(f"{source}: it does not contain a Docker host; {expected}")
    host = host.strip()
    shown = re.sub(r"://.*@", "://…@", host, flags=re.DOTALL)
    if host.startswith("ssh://"):
        raise EngineUnavailableError(
            f"{source}: {shown}: ssh is not supported",
            hint="forward the socket: ssh -NL /tmp/docker.sock:/var/run/docker.sock HOST, "
            "then DOCKER_HOST=unix:///tmp/docker.sock",
        )
    if host.startswith("unix://") and len(host) > len("unix://"):
        return host
    if host.startswith(("tcp://", "http://", "https://")):
        url = urlsplit(host)
        try:
            port = url.port
        except ValueError:
            port = None
        if url.hostname and port and url.username is None:
            return f"tcp://{url.netloc}{url.path}"
    raise EngineUnavailableError(f"{source}: {shown[:100]!r} is not the address of a Docker Engine: {expected}")


def _certificates(folder: Path) -> dict[str, Any]:
    files = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key") if (folder / f"{name}.pem").is_file()}
    if ("cert" in files) != ("key" in files):
        raise EngineUnavailableError(f"{folder}: cert.pem or key.pem is missing, and TLS needs both")
    return dict(files)


def _config(path: Path) -> dict[str, Any]:
    """Reads config.json; returns {} for a missing or broken file, which the module for logins reports."""
    try:
        document = _json(path)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _json(path: Path) -> Any:
    with path.open("rb") as file:
        return json.loads(file.read(_LARGEST_FILE))
