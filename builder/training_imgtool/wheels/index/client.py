"""HTTP to package indexes: logins, redirects, and retries with a growing pause.

What the retries do not outlast is one of imgtool's own errors, without a credential in it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from training_imgtool.core.errors import CredentialsError, TemporaryError, VerificationError
from training_imgtool.http.pool import Pool, Response, make_pool, transport_errors
from training_imgtool.wheels.index.credentials import find_authorization, without_login

ATTEMPTS = 5
SCHEMES = frozenset({"http", "https"})
_REDIRECTS = 5
_REFUSALS = frozenset({401, 403, 407})
_MISSING = frozenset({404, 410})


class MissingFileError(LookupError):
    """The server, or the folder, has no such file."""


class IndexClient:
    """Requests to indexes and to the servers of their files. Safe to use from several threads.

    Args:
        index_urls: gives the indexes' URLs, which may hold credentials.
        environ: for credentials: UV_INDEX_…, NETRC, HOME.
        proxies: as in Settings.
        ca_file: a PEM file to trust.
        insecure: hosts whose certificates are not checked.
        pause: sleeps; replaced in tests.
    """

    def __init__(
        self,
        index_urls: Callable[[], tuple[str, ...]],
        *,
        environ: Mapping[str, str],
        proxies: Mapping[str, str],
        ca_file: Path | None,
        insecure: tuple[str, ...],
        pause: Callable[[float], None],
    ) -> None:
        self._index_urls = index_urls
        self._environ = environ
        self._proxies = proxies
        self._ca_file = ca_file
        self._insecure = insecure
        self._pause = pause
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, str], Pool] = {}

    @contextmanager
    def open(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[Response]:
        """One answer of 200 or 206, redirects followed and faults retried; its connection is given back."""
        response = self._request_until_answered(method, url, headers)
        try:
            yield response
        except BaseException:
            response.close()  # what is left unread would be the next answer on this connection
            raise
        response.drain_conn()
        response.release_conn()

    def _request_until_answered(self, method: str, url: str, headers: Mapping[str, str]) -> Response:
        index_urls = self._index_urls()
        for attempt in range(1, ATTEMPTS + 1):
            target, response = url, None
            try:
                for _ in range(_REDIRECTS + 1):
                    response = self._request(method, target, headers, index_urls)
                    location = response.headers.get("Location")
                    if response.status not in (301, 302, 303, 307, 308) or not location:
                        break
                    response.drain_conn()
                    target = _resolve_redirect(target, location)
            except transport_errors() as error:
                if attempt == ATTEMPTS:
                    raise TemporaryError(
                        f"the package index {host_of(target)} does not answer: {shorten_cause(error)}",
                        hint="try again later",
                    ) from error
                self.wait(attempt)
                continue
            if response is None:
                break
            if response.status in (200, 206):
                return response
            self._raise_refusal(response, target)
            if attempt == ATTEMPTS:
                raise TemporaryError(f"{host_of(target)} answers {response.status}", hint="try again later")
            self.wait(attempt, response.headers.get("Retry-After"))
        raise TemporaryError(f"{host_of(url)} does not answer")

    def _request(self, method: str, url: str, headers: Mapping[str, str], index_urls: tuple[str, ...]) -> Response:
        login = find_authorization(url, index_urls, self._environ)
        request_headers = {**headers, **({"Authorization": login} if login else {})}
        plain = without_login(url)
        pool = self._open_pool(plain)
        return pool.request(
            method,
            plain,
            headers={**pool.headers, "Accept-Encoding": "identity", **request_headers},
            preload_content=False,
            redirect=False,
        )

    def _raise_refusal(self, response: Response, url: str) -> None:
        """Raises for an answer that will not get better."""
        status = response.status
        response.drain_conn()
        if status in _MISSING:
            raise MissingFileError(without_login(url))
        if status in _REFUSALS:
            raise CredentialsError(
                f"{host_of(url)} refuses access ({status}); tried: the index's URL, UV_INDEX_…, netrc, keyring",
                hint="put user and password into the index's URL, netrc or keyring, as for uv and pip",
            )
        if 300 <= status < 500 and status not in (408, 429):
            raise TemporaryError(
                f"{host_of(url)} answers {status} to {urlsplit(url).path}", hint="is the URL an index?"
            )

    def wait(self, attempt: int, retry_after: str | None = None) -> None:
        """Sleeps before the next try: as long as a Retry-After header says (at most 60 s), else longer each time."""
        seconds = min(float(retry_after), 60.0) if retry_after and retry_after.isdigit() else 0.5 * 2 ** (attempt - 1)
        self._pause(seconds * random.uniform(0.75, 1.25))  # noqa: S311 jitter, not a secret

    def _open_pool(self, url: str) -> Pool:
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc)
        with self._lock:
            if key not in self._pools:
                trusted = {parts.hostname, parts.netloc} & set(self._insecure)
                self._pools[key] = make_pool(
                    url, proxies=self._proxies, ca_file=self._ca_file, verify=not trusted, connections=16
                )
            return self._pools[key]


def host_of(url: str) -> str:
    """`HOST[:PORT]` of a URL, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def shorten_cause(error: Exception) -> str:
    """The last words of a urllib3 message, which are the cause; its first hold addresses of objects."""
    return str(getattr(error, "reason", None) or error).rpartition(": ")[2][:120]


def _resolve_redirect(url: str, location: str) -> str:
    """Where a redirect leads; raises VerificationError unless that is an http or https address."""
    target = urljoin(url, location)
    if urlsplit(target).scheme not in SCHEMES or not urlsplit(target).netloc:
        raise VerificationError(
            f"{host_of(url)} redirects to {without_login(target)[:200]!r}; imgtool follows http and https only",
            hint="is the URL an index?",
        )
    return target
