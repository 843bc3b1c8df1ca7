"""Makes one client for each registry host, with the machine's settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from training_imgtool.base.http.client import Client
from training_imgtool.base.http.retry import Retry
from training_imgtool.base.progress import Progress, silent
from training_imgtool.base.reference import Repository, apply_mirror
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.registry.auth.auth import Authorizer, TokenStore
from training_imgtool.oci.registry.auth.logins import FoundLogin, HostLogin, find_login
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.dialects import DIALECTS, Dialect, find_dialect
from training_imgtool.oci.registry.manifests import Descriptor
from training_imgtool.oci.registry.session import Session, find_origin

if TYPE_CHECKING:
    from training_imgtool.oci.registry.upload import How


class Registries:
    """The clients of this process, one per host. Safe for threads; the caller closes it at the end.

    Args:
        settings: the machine's settings.
        progress: receives waits and warnings.
        retry: the policy for every request.
        dialects: the peculiarities of registries.
        idle_seconds: the longest time between two blocks.
        now: the wall clock.
    """

    def __init__(
        self,
        settings: Settings,
        progress: Progress = silent,
        *,
        retry: Retry | None = None,
        dialects: tuple[Dialect, ...] = DIALECTS,
        idle_seconds: float = 60.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._retry = retry or Retry()
        self._dialects = dialects
        self._now = now
        self._http = Client(
            proxies=settings.proxies,
            ca_file=settings.ca_file,
            certificates=settings.certificates,
            idle_seconds=idle_seconds,
        )
        self._logins: dict[str, HostLogin] = {}
        self._clients: dict[str, Registry] = {}
        self._lock = threading.Lock()

    def at(self, where: Repository | str) -> Registry:
        """Returns the client for a registry, given the registry's host or a repository in the registry."""
        host = where if isinstance(where, str) else where.registry
        with self._lock:
            if host not in self._clients:
                self._clients[host] = self._client(host)
            return self._clients[host]

    def source(self, repository: Repository) -> Repository:
        """Returns the repository from which to read: `repository`, or its copy in the mirror that the settings name."""
        return apply_mirror(repository, self._settings.mirrors)

    def login(self, host: str) -> FoundLogin:
        """Finds the login for a host, for engines, which pull and push without imgtool; raises CredentialsError."""
        return self._login(host).search()

    def _login(self, host: str) -> HostLogin:
        if host not in self._logins:  # two threads may each make a client; one of them stays
            self._logins.setdefault(host, HostLogin(host, lambda: find_login(host, self._settings)))
        return self._logins[host]

    def copy_blob(
        self,
        source: Repository,
        descriptor: Descriptor,
        target: Repository,
        *,
        mount_from: Repository | None = None,
        subject: str = "",
        progress: Progress = silent,
    ) -> How:
        """Makes sure that `target` has a blob of `source`: by HEAD, by a mount if possible, else by copying the bytes.

        The mount is from `mount_from`, by default from `source`.
        Verifies copied bytes and writes nothing to disk. Raises the same errors as `Registry.upload` and
        `Registry.blob`.
        """
        reader = self.at(source)

        def content() -> Iterator[bytes]:
            return reader.blob(source, descriptor)

        return self.at(target).upload(
            target,
            descriptor,
            content,
            mount_from=mount_from or source,
            subject=subject,
            progress=progress,
        )

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _client(self, host: str) -> Registry:
        settings, dialect, login = self._settings, find_dialect(host, self._dialects), self._login(host)
        tokens = TokenStore(
            host,
            settings.cache / "tokens",
            identity=_fingerprint(settings.docker_config / "config.json"),
            now=self._now,
        )
        origin = find_origin(host, dialect, settings.insecure)
        session = Session(
            host,
            dialect=dialect,
            client=self._http,
            authorizer=Authorizer(
                host, dialect, origin, login=login, tokens=tokens, send=self._http.send, now=self._now
            ),
            origin=origin,
            guesses=origin.scheme == "http" and host not in settings.insecure,
            retry=self._retry,
            progress=self._progress,
            now=self._now,
        )
        return Registry(session, SingleFlight())


def _fingerprint(path: Path) -> str:
    """Returns mtime, size and inode of config.json as text, so that a changed login file gets a new token."""
    try:
        state = path.stat()
    except OSError:
        return ""
    return f"{state.st_mtime_ns}:{state.st_size}:{state.st_ino}"
