"""The login for a registry: Docker's for its host, else Google's own credentials, else none.

An error names the places that imgtool looked at, never a secret. imgtool does not read ~/.netrc.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import Login
from training_imgtool.core.settings import Settings
from training_imgtool.registry.auth.docker_config import IDENTITY_TOKEN, helper_for, read_config, stored_login
from training_imgtool.registry.dialects import is_google


class LoginSource(Protocol):
    """Hands out a login that lasts; renews it before it ends."""

    def __call__(self) -> Login:
        """The login now; raises CredentialsError, TemporaryError."""


FindGoogle = Callable[[Settings], tuple[LoginSource | None, str]]


@dataclass(frozen=True, slots=True)
class FoundLogin:
    """The result of a search for a login.

    Attributes:
        source: hands out the login; None for an anonymous client.
        name: where it comes from, for messages.
        tried: every place that imgtool looked at.
        notes: what the user should know, such as a config that others can read.
    """

    source: LoginSource | None
    name: str
    tried: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def login(self) -> Login | None:
        """The login now. A user name `<token>` means that the password is a refresh token (Docker's convention)."""
        return self.source() if self.source else None


def find_login(host: str, settings: Settings, *, google: FindGoogle | None = None) -> FoundLogin:
    """Finds the login for a registry host (`docker.io` for Docker Hub).

    Raises:
        CredentialsError: a place exists but is broken.
    """
    config = read_config(settings.docker_config)
    if config is None:
        tried = [f"{settings.docker_config}/config.json (not there)"]
    else:
        note = f"{config.path} holds passwords and can be read by others: chmod 600"
        notes = (note,) if config.readable_by_others else ()
        tried = []
        helper = helper_for(config, host)
        if helper:
            from training_imgtool.registry.auth.credential_helper import run_helper

            login = run_helper(helper, host, settings.environ)
            if login:
                return _constant(login, f"docker-credential-{helper}", notes)
            tried.append(f"docker-credential-{helper} (has none for {host})")
        login = stored_login(config, host)
        if login:
            return _constant(login, str(config.path), notes)
        tried.append(f"{config.path} (no entry for {host})")
    if is_google(host):
        source, name = (google or _application_default)(settings)
        if source:
            return FoundLogin(source, name, (*tried, name))
        tried.append(name)
    return FoundLogin(None, "no login", tuple(tried))


def _constant(login: Login, name: str, notes: tuple[str, ...]) -> FoundLogin:
    return FoundLogin(lambda: login, name, (name,), notes)


def _application_default(settings: Settings) -> tuple[LoginSource | None, str]:
    from training_imgtool.registry.auth.google import application_default

    return application_default(settings)


class HostLogin:
    """A host's login; searches for it once, when it is first needed. Safe for threads."""

    def __init__(self, host: str, find: Callable[[], FoundLogin], progress: Progress) -> None:
        self.host = host
        self._find = find
        self._progress = progress
        self._result: FoundLogin | ImgtoolError | None = None
        self._lock = threading.Lock()

    def login(self) -> Login | None:
        """The login now, or None for an anonymous client; raises CredentialsError, TemporaryError."""
        return self.search().login

    def search(self) -> FoundLogin:
        """The result of the search; raises what the search raised, each time."""
        with self._lock:
            if self._result is None:
                try:
                    self._result = self._find()
                except ImgtoolError as error:
                    self._result = error
                else:
                    for note in self._result.notes:
                        self._progress(Note(note))
        if isinstance(self._result, ImgtoolError):
            raise self._result
        return self._result


def is_refresh_token(login: Login) -> bool:
    """Whether the password can only be exchanged at the token server."""
    return login.username == IDENTITY_TOKEN
