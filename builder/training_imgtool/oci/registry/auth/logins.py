"""Finds the login for a registry: in Docker's config.json, through a credential helper, or in Google's credentials.

An error names the places where imgtool looked, never a secret. imgtool does not read ~/.netrc. docker/cli defines the
format of config.json (`auths`, `credsStore`, `credHelpers`, `identitytoken`).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from training_imgtool.base.errors import CredentialsError, ImgtoolError
from training_imgtool.base.reference import Login
from training_imgtool.base.sanitize import mask_secrets
from training_imgtool.base.settings import Settings
from training_imgtool.oci.registry.dialects import find_dialect

IDENTITY_TOKEN = "<token>"  # noqa: S105 the user name that helpers give with a refresh token, not a secret
_HELPER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*\Z"
HELPER_SECONDS = 50.0  # a helper may wait for single sign-on in a browser
_NOT_FOUND = ("credentials not found", "no credentials found", "not found in native keychain")


class LoginSource(Protocol):
    """Returns a valid login, which the source renews before the login expires."""

    def __call__(self) -> Login:
        """Returns the current login; raises CredentialsError, TemporaryError."""


FindGoogle = Callable[[Settings], tuple[LoginSource | None, str]]


@dataclass(frozen=True, slots=True)
class FoundLogin:
    """The result of a search for a login.

    Attributes:
        source: returns the login; None for an anonymous client.
        name: the place of the login, for messages.
        tried: every place where imgtool looked.
    """

    source: LoginSource | None
    name: str
    tried: tuple[str, ...]

    @property
    def login(self) -> Login | None:
        """Returns the current login. If the user name is `<token>`, the password is a refresh token."""
        return self.source() if self.source else None


def find_login(host: str, settings: Settings, *, google: FindGoogle | None = None) -> FoundLogin:
    """Finds the login for a registry host (`docker.io` for Docker Hub).

    Raises:
        CredentialsError: config.json, a credential helper or Google's credentials exist but do not work.
    """
    tried = []
    for path in (settings.docker_config / "config.json", *_list_podmans(settings.environ)):
        config = read_config(path)
        if config is None:
            tried.append(f"{path} (not there)")
            continue
        helper = helper_for(config, host)
        if helper:
            login = run_helper(helper, host, settings.environ)
            if login:
                return _constant(login, f"docker-credential-{helper}")
            tried.append(f"docker-credential-{helper} (has none for {host})")
        login = stored_login(config, host)
        longer = next((key for key in _list_auths(config) if _is_longer(key, host)), None)
        unused = f", and imgtool does not use the one for {longer}" if longer else ""
        if login:
            return _constant(login, f"{config.path}{unused and f' (its entry for {host}{unused})'}")
        tried.append(f"{config.path} (no entry for {host}{unused})")
    if find_dialect(host).application_default:
        source, name = (google or _application_default)(settings)
        if source:
            return FoundLogin(source, name, (*tried, name))
        tried.append(name)
    return FoundLogin(None, "no login", tuple(tried))


def _constant(login: Login, name: str) -> FoundLogin:
    return FoundLogin(lambda: login, name, (name,))


def _application_default(settings: Settings) -> tuple[LoginSource | None, str]:
    from training_imgtool.oci.registry.auth.google import application_default

    return application_default(settings)


class HostLogin:
    """Searches for a host's login only once, when the login is first needed. Safe for threads."""

    def __init__(self, host: str, find: Callable[[], FoundLogin]) -> None:
        self.host = host
        self._find = find
        self._result: FoundLogin | ImgtoolError | None = None
        self._lock = threading.Lock()

    def login(self) -> Login | None:
        """Returns the current login, or None for an anonymous client; raises CredentialsError, TemporaryError."""
        return self.search().login

    def search(self) -> FoundLogin:
        """Returns the result of the search. If the search failed, every call raises the same error."""
        with self._lock:
            if self._result is None:
                try:
                    self._result = self._find()
                except ImgtoolError as error:
                    self._result = error
        if isinstance(self._result, ImgtoolError):
            raise self._result
        return self._result


def is_refresh_token(login: Login) -> bool:
    """Returns whether the password is a refresh token, which only the token server accepts."""
    return login.username == IDENTITY_TOKEN


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """Docker's config.json: its path and its content."""

    path: Path
    document: Mapping[str, Any]


def _list_podmans(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the files in which Podman stores logins (containers-auth.json(5)), which have the format of Docker's."""
    if given := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(given)
        return
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or '/nonexistent'}/.config"
    yield Path(config) / "containers/auth.json"


def read_config(path: Path) -> DockerConfig | None:
    """Reads a file with logins; None if the file is missing. Raises CredentialsError if it is damaged."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CredentialsError(
            f"{path} cannot be read: {error.strerror}", hint="imgtool reads logins there (DOCKER_CONFIG)"
        ) from error
    try:
        document = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        place = f"{path}:{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else path
        raise CredentialsError(
            f"{place}: not JSON ({getattr(error, 'msg', error)})",
            hint="repair the file, or remove it and log in again",
        ) from error
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}:1: not a JSON object", hint="repair the file, or remove it and log in again")
    return DockerConfig(path, document)


def helper_for(config: DockerConfig, host: str) -> str | None:
    """Returns the name of a host's credential helper from `credHelpers`, else from `credsStore`, else None.

    An empty name in `credHelpers` means that config.json itself contains the login.
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
    """Finds a host's login in `auths`, under the host's name or an old key; raises CredentialsError if damaged."""
    auths = _list_auths(config)
    keys = sorted((key for key in auths if _same_host(str(key), host)), key=lambda key: (key != host, key))
    for key in keys:
        entry = auths[key]
        if isinstance(entry, dict) and (login := _entry_login(config, key, entry)):
            return login
    return None


def _list_auths(config: DockerConfig) -> Mapping[str, Any]:
    auths = config.document.get("auths")
    return auths if isinstance(auths, dict) else {}


def _name_host(key: str) -> str:
    return key.removeprefix("https://").removeprefix("http://")


def _is_longer(key: str, host: str) -> bool:
    """Returns whether a key of `auths` names only a part of a host, as Podman and Kubernetes allow."""
    return _name_host(key).startswith(f"{host}/") and not _same_host(key, host)


def _same_host(key: str, host: str) -> bool:
    """Returns whether a key of `auths` names a host, with or without the scheme and the API's path."""
    name, _, path = _name_host(key).partition("/")
    if path.strip("/") not in {"", "v1", "v2"}:
        return False
    return name == host or name in find_dialect(host).login_hosts


def _entry_login(config: DockerConfig, key: str, entry: dict[str, Any]) -> Login | None:
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return Login(username=IDENTITY_TOKEN, password=token)
    if isinstance(auth, str) and auth:
        where = f"{config.path}: auths.{key}.auth"
        hint = "run `docker logout` and `docker login` for it again"
        try:
            decoded = base64.b64decode("".join(auth.split()), validate=True).decode().rstrip("\0")  # may be wrapped
        except (binascii.Error, ValueError):
            raise CredentialsError(f"{where} is not base64", hint=hint) from None
        user, colon, password = decoded.partition(":")
        if not colon or not user:
            raise CredentialsError(f"{where} does not contain USER:PASSWORD", hint=hint)
        return Login(username=user, password=password)
    name, secret = entry.get("username"), entry.get("password")
    if isinstance(name, str) and name and isinstance(secret, str):
        return Login(username=name, password=secret)
    return None


def run_helper(name: str, host: str, environ: Mapping[str, str], *, seconds: float = HELPER_SECONDS) -> Login | None:
    """Asks `docker-credential-NAME` for a host's login; returns None if the helper has no login for the host.

    Protocol: docker/docker-credential-helpers, `get` with the server on stdin and JSON on stdout.

    Raises:
        CredentialsError: the helper is missing, fails, hangs, or does not answer as the protocol defines.
    """
    import shutil

    program = f"docker-credential-{name}"
    path = shutil.which(program, path=environ.get("PATH", os.defpath))
    if path is None:
        raise CredentialsError(
            f"{program}, which Docker's config names for {host}, is not on PATH",
            hint=f"install {program}, or remove {name!r} from Docker's config.json",
        )
    code, out, err = _talk(program, path, find_dialect(host).helper_host or host, environ, seconds)
    text = out.decode("utf-8", "replace").strip()
    if code != 0:
        said = text or err.decode("utf-8", "replace")
        if any(words in said.lower() for words in _NOT_FOUND):
            return None
        raise CredentialsError(
            f"{program} failed for {host} (exit code {code}); its output: {mask_secrets(said) or 'nothing'}"
        )
    if not text:
        return None
    try:
        answer = json.loads(text)
        user, secret = answer.get("Username", ""), answer.get("Secret", "")
    except (ValueError, AttributeError, RecursionError):
        raise CredentialsError(f"{program} answered for {host} with something other than the expected JSON") from None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise CredentialsError(f"{program} answered for {host} without a user name and secret")
    return Login(username=user, password=secret) if user and secret else None


def _talk(program: str, path: str, server: str, environ: Mapping[str, str], seconds: float) -> tuple[int, bytes, bytes]:
    """Runs a helper in a new process group, so that imgtool can end a helper that hangs, with its child processes."""
    import signal
    import subprocess

    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [path, "get"], stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environ), start_new_session=True
        )
    except OSError as error:
        raise CredentialsError(f"{program} cannot be run: {error.strerror}") from error
    with process:
        try:
            out, err = process.communicate(server.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise CredentialsError(f"{program} did not answer within {seconds:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err
