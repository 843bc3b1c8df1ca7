"""Sends requests to package indexes and the servers of their files, with logins, and interprets the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from training_imgtool.base.errors import CredentialsError, TemporaryError
from training_imgtool.base.http.client import SMALL, Answer, Client
from training_imgtool.base.http.retry import Attempt, PassingError, Retry, retry_after
from training_imgtool.resolve.wheels.index.credentials import find_authorization, without_login

_REFUSALS = frozenset({401, 403, 407})
MISSING = frozenset({404, 410})


class MissingFileError(LookupError):
    """The server or the folder does not have the requested file."""


class IndexClient:
    """Sends requests with the login of the index to which a URL belongs. Safe for several threads.

    Args:
        client: sends the requests.
        index_urls: returns the indexes' URLs, which may contain credentials.
        environ: variables for credentials (UV_INDEX_…, NETRC, HOME).
        pause: sleeps; tests replace it.
    """

    def __init__(
        self,
        client: Client,
        index_urls: Callable[[], tuple[str, ...]],
        *,
        environ: Mapping[str, str],
        pause: Callable[[float], None],
    ) -> None:
        self._client = client
        self._index_urls = index_urls
        self._environ = environ
        self._retry = Retry(tries=5, sleep=pause)

    def attempts(self, url: str) -> Iterator[Attempt]:
        """Yields the attempts of one operation, as `Retry.attempts` does."""
        return self._retry.attempts(f"the package index {host_of(url)}")

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        limit: int = SMALL,
        stream: bool = False,
        missing: frozenset[int] = MISSING,
    ) -> Answer:
        """Sends a request once and follows redirects; the answer's status is 200 or 206.

        `missing` are the statuses with which the server says that it does not have the file.

        Raises:
            PassingError: another try may succeed.
            MissingFileError: there is no such file.
            CredentialsError, RegistryRefusedError, TemporaryError: the server does not send the file.
        """
        try:
            answer = self._client.follow(
                method, url, headers=lambda target: self._add_login(target, headers), limit=limit, stream=stream
            )
        except TemporaryError as error:
            message = f"the package index {host_of(url)} does not answer: {error.message}"
            raise TemporaryError(message, hint="try again later") from error
        status, host = answer.status, host_of(answer.url)
        if status in {200, 206}:
            return answer
        if status in missing:
            raise MissingFileError(without_login(answer.url))
        if status in _REFUSALS:
            raise CredentialsError(
                f"{host} refuses access ({status}); imgtool tried logins of the URL, UV_INDEX_…, netrc, keyring",
                hint="put user name and password into the index's URL, netrc or keyring, as for uv and pip",
            )
        if 300 <= status < 500 and status not in {408, 429}:
            raise TemporaryError(f"{host} answers {status} to {urlsplit(answer.url).path}", hint="check the index URL")
        wait = retry_after(answer.headers.get("retry-after"), time.time())
        raise PassingError(f"answered {status}", retry_after=wait, status=status)

    def _add_login(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        login = find_authorization(url, self._index_urls(), self._environ)
        return {**headers, **({"Authorization": login} if login else {})}


def host_of(url: str) -> str:
    """Returns `HOST[:PORT]` of a URL, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]
