"""Docker's config.json: the login that `docker login` stored for a registry, or the helper that has it.

Format: docker/cli's config file (`auths`, `credsStore`, `credHelpers`, `identitytoken`).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_imgtool.core.errors import CredentialsError
from training_imgtool.core.reference import DOCKER_HUB, Login

IDENTITY_TOKEN = "<token>"  # noqa: S105 the user name that helpers give with a refresh token, not a secret
HUB_SERVER = "https://index.docker.io/v1/"
_HUB_HOSTS = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.docker.io"})
_LARGEST_CONFIG = 4 * 1024 * 1024
_HELPER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*\Z"


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """A config.json: where it is, what it says, and the text for line numbers."""

    path: Path
    document: Mapping[str, Any]
    text: str
    mode: int  # permission bits

    @property
    def readable_by_others(self) -> bool:
        """Whether other users may read a file that holds passwords."""
        auths = self.document.get("auths")
        entries = auths.values() if isinstance(auths, dict) else ()
        secret = any(isinstance(e, dict) and (e.get("auth") or e.get("password")) for e in entries)
        return secret and bool(self.mode & 0o044)


def read_config(folder: Path) -> DockerConfig | None:
    """Reads `config.json` in Docker's folder; None if there is none. Raises CredentialsError if it is broken."""
    path = folder / "config.json"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 the descriptor was opened without blocking on a FIFO
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise CredentialsError(f"{path} is not a file", hint="Docker's logins are read from there")
            data = file.read(_LARGEST_CONFIG + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CredentialsError(
            f"{path} cannot be read: {error.strerror}", hint="Docker's logins are read from there (DOCKER_CONFIG)"
        ) from error
    if len(data) > _LARGEST_CONFIG:
        raise CredentialsError(f"{path} is larger than {_LARGEST_CONFIG} bytes; that is no Docker config")
    text = data.decode("utf-8-sig", "replace")
    try:
        document = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise CredentialsError(
            f"{path}:{error.lineno}:{error.colno}: not JSON ({error.msg})",
            hint="repair the file, or remove it and log in again",
        ) from error
    except RecursionError as error:
        raise CredentialsError(f"{path}: nested too deeply to be a Docker config") from error
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}:1: not a JSON object", hint="repair the file, or remove it and log in again")
    return DockerConfig(path, document, text, stat.S_IMODE(mode))


def helper_for(config: DockerConfig, host: str) -> str | None:
    """The name of the credential helper for a host: its own in `credHelpers`, else `credsStore`, else None.

    An empty name in `credHelpers` stands for the file itself.
    """
    helpers = config.document.get("credHelpers")
    helper: Any = config.document.get("credsStore")
    if isinstance(helpers, dict):
        helper = next((name for key, name in helpers.items() if _same_host(str(key), host)), helper)
    if not helper:
        return None
    if not isinstance(helper, str) or not re.match(_HELPER_NAME, helper):
        raise CredentialsError(f"{config.path}: {str(helper)[:40]!r} is not the name of a credential helper")
    return helper


def stored_login(config: DockerConfig, host: str) -> Login | None:
    """The login in `auths` for a host, under its name or any historical key; raises CredentialsError when broken."""
    auths = config.document.get("auths")
    if not isinstance(auths, dict):
        return None
    keys = sorted((key for key in auths if _same_host(str(key), host)), key=lambda key: (key != host, key))
    for key in keys:
        entry = auths[key]
        if isinstance(entry, dict) and (login := _entry_login(config, key, entry)):
            return login
    return None


def server_name(host: str) -> str:
    """What a credential helper knows a host as."""
    return HUB_SERVER if host == DOCKER_HUB else host


def _same_host(key: str, host: str) -> bool:
    """Whether a key of `auths` means a host: with or without scheme, and the API's path; Docker Hub has many names."""
    bare = key.removeprefix("https://").removeprefix("http://")
    name, _, path = bare.partition("/")
    if path.strip("/") not in {"", "v1", "v2"}:
        return False
    return name == host or (host == DOCKER_HUB and name in _HUB_HOSTS)


def _entry_login(config: DockerConfig, key: str, entry: dict[str, Any]) -> Login | None:
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return Login(username=IDENTITY_TOKEN, password=token)
    if isinstance(auth, str) and auth:
        where = f"{config.path}:{_find_line(config.text, key)}: auths.{key}.auth"
        hint = "run `docker logout` and `docker login` for it again"
        try:
            decoded = base64.b64decode(auth, validate=True).decode().rstrip("\0")
        except (binascii.Error, ValueError):
            raise CredentialsError(f"{where} is not base64", hint=hint) from None
        user, colon, password = decoded.partition(":")
        if not colon or not user:
            raise CredentialsError(f"{where} does not hold USER:PASSWORD", hint=hint)
        return Login(username=user, password=password)
    name, secret = entry.get("username"), entry.get("password")
    if isinstance(name, str) and name and isinstance(secret, str):
        return Login(username=name, password=secret)
    return None


def _find_line(text: str, key: str) -> int:
    position = text.find(json.dumps(key))
    return text.count("\n", 0, position) + 1 if position >= 0 else 1
