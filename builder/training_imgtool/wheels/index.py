"""The package index over HTTP and in folders: where a file is, how large it is, and its bytes.

Every transport fault is retried here, with a growing pause; what is left over is one of imgtool's own errors,
without a credential in it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from training_imgtool.core.errors import CredentialsError, LocalFileError, TemporaryError, VerificationError
from training_imgtool.core.http_pool import Pool, Response, make_pool, transport_errors
from training_imgtool.wheels.index_credentials import authorization, without_login
from training_imgtool.wheels.index_page import ACCEPT, IndexedFile, PageError, page_url, parse_page
from training_imgtool.wheels.uv import Indexes

BLOCK = 1 << 18
_ATTEMPTS = 5
_REDIRECTS = 5
_PAGE_BYTES = 64 << 20
_REFUSALS = frozenset({401, 403, 407})
_MISSING = frozenset({404, 410})


class MissingFileError(LookupError):
    """The server, or the folder, has no such file."""


class Index:
    """This machine's indexes. Safe to use from several threads.

    Args:
        indexes: gives where to look; it is called once, when first needed.
        environ: for credentials: UV_INDEX_…, NETRC, HOME.
        proxies: as in Settings.
        ca_file: a PEM file to trust.
        insecure: hosts whose certificates are not checked.
        pause: sleeps; replaced in tests.
    """

    def __init__(
        self,
        indexes: Callable[[], Indexes],
        *,
        environ: Mapping[str, str],
        proxies: Mapping[str, str],
        ca_file: Path | None = None,
        insecure: tuple[str, ...] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find_indexes = indexes
        self._environ = environ
        self._proxies = proxies
        self._ca_file = ca_file
        self._insecure = insecure
        self._pause = pause
        self._lock = threading.Lock()
        self._known: Indexes | None = None
        self._pools: dict[tuple[str, str], Pool] = {}

    def places(self) -> Indexes:
        """Where this machine looks; found once."""
        with self._lock:
            self._known = self._known or self._find_indexes()
            return self._known

    def locate(self, name: str, file: str, sha256: str) -> str | None:
        """The URL of a project's file with that hash, or None when no index has it.

        Raises TemporaryError when an index that might have it does not answer, CredentialsError when one refuses.
        """
        for row in self._listed(name):
            if row.file == file and row.sha256 in (None, sha256):
                return row.url
        return None

    def files(self, name: str) -> tuple[IndexedFile, ...]:
        """Every file of a project on this machine's indexes; none when no index has the project. Raises as `locate`."""
        return tuple(self._listed(name))

    def size(self, url: str) -> int:
        """A file's size in bytes; raises MissingFileError, TemporaryError, CredentialsError."""
        if urlsplit(url).scheme == "file":
            return _local(url).stat().st_size
        with self._response("HEAD", url, {}) as response:
            length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length):
            return int(length)
        return sum(len(block) for block in self.read(url))

    def read(self, url: str, offset: int = 0, restarted: Callable[[], None] | None = None) -> Iterator[bytes]:
        """A file's bytes from `offset` on, in blocks.

        A connection that breaks is continued with a Range request. When a server cannot do that, `restarted`
        is called and the bytes begin anew; without `restarted` that is a TemporaryError.
        """
        if urlsplit(url).scheme == "file":
            yield from _read_local(_local(url), offset)
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                headers = {"Range": f"bytes={offset}-"} if offset else {}
                with self._response("GET", url, headers) as response:
                    if offset and response.status != 206:
                        if restarted is None:
                            raise TemporaryError(f"{_host(url)} cannot continue a broken download", hint="try again")
                        restarted()
                        offset = 0
                    for block in response.stream(BLOCK):
                        offset += len(block)
                        yield block
            except transport_errors() as error:
                if attempt == _ATTEMPTS:
                    raise TemporaryError(f"{_host(url)}: the download broke off: {_short(error)}") from error
                self._wait(attempt)
            else:
                return

    def _listed(self, name: str) -> Iterator[IndexedFile]:
        known = self.places()
        for place in known.find_links:
            yield from self._links(place)
        for index in known.urls:
            yield from self._page(page_url(index, name))

    def _links(self, place: str) -> Iterator[IndexedFile]:
        """A find-links entry: a folder, or a page."""
        if "://" in place and not place.startswith("file:"):
            yield from self._page(place)
            return
        folder = _local(place) if place.startswith("file:") else Path(place)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                yield IndexedFile(path.name, path.absolute().as_uri(), None, None)

    def _page(self, url: str) -> tuple[IndexedFile, ...]:
        try:
            if urlsplit(url).scheme == "file":
                path = _local(url) / "index.html"
                return parse_page(path.read_bytes(), "text/html", path.as_uri())
            with self._response("GET", url, {"Accept": ACCEPT}) as response:
                data = response.read(_PAGE_BYTES)
                final = str(response.geturl() or url)
                return parse_page(data, response.headers.get("Content-Type", ""), urljoin(url, final))
        except (FileNotFoundError, NotADirectoryError, MissingFileError):
            return ()
        except PageError as error:
            raise VerificationError(f"{without_login(url)}: {error}") from error
        except OSError as error:
            raise LocalFileError(f"{without_login(url)}: {error.strerror}") from error

    @contextmanager
    def _response(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[Response]:
        """One answer of 200 or 206, redirects followed and faults retried; its connection is given back."""
        response = self._answer(method, url, headers)
        try:
            yield response
        except BaseException:
            response.close()  # what is left unread would be the next answer on this connection
            raise
        response.drain_conn()
        response.release_conn()

    def _answer(self, method: str, url: str, headers: Mapping[str, str]) -> Response:
        known = self.places().urls
        for attempt in range(1, _ATTEMPTS + 1):
            target, response = url, None
            try:
                for _ in range(_REDIRECTS + 1):
                    response = self._once(method, target, headers, known)
                    location = response.headers.get("Location")
                    if response.status not in (301, 302, 303, 307, 308) or not location:
                        break
                    response.drain_conn()
                    target = urljoin(target, location)
            except transport_errors() as error:
                if attempt == _ATTEMPTS:
                    raise TemporaryError(
                        f"the package index {_host(target)} does not answer: {_short(error)}", hint="try again later"
                    ) from error
                self._wait(attempt)
                continue
            if response is None:
                break
            if response.status in (200, 206):
                return response
            self._refused(response, target)
            if attempt == _ATTEMPTS:
                raise TemporaryError(f"{_host(target)} answers {response.status}", hint="try again later")
            self._wait(attempt, response.headers.get("Retry-After"))
        raise TemporaryError(f"{_host(url)} does not answer")

    def _once(self, method: str, url: str, headers: Mapping[str, str], known: tuple[str, ...]) -> Response:
        login = authorization(url, known, self._environ)
        sent = {**headers, **({"Authorization": login} if login else {})}
        plain = without_login(url)
        pool = self._pool(plain)
        return pool.request(
            method,
            plain,
            headers={**pool.headers, "Accept-Encoding": "identity", **sent},
            preload_content=False,
            redirect=False,
        )

    def _refused(self, response: Response, url: str) -> None:
        """Raises for an answer that will not get better."""
        status = response.status
        response.drain_conn()
        if status in _MISSING:
            raise MissingFileError(without_login(url))
        if status in _REFUSALS:
            raise CredentialsError(
                f"{_host(url)} refuses access ({status}); tried: the index's URL, UV_INDEX_…, netrc, keyring",
                hint="put user and password into the index's URL, netrc or keyring, as for uv and pip",
            )
        if 300 <= status < 500 and status not in (408, 429):
            raise TemporaryError(f"{_host(url)} answers {status} to {urlsplit(url).path}", hint="is the URL an index?")

    def _wait(self, attempt: int, asked: str | None = None) -> None:
        seconds = min(float(asked), 60.0) if asked and asked.isdigit() else 0.5 * 2 ** (attempt - 1)
        self._pause(seconds * random.uniform(0.75, 1.25))  # noqa: S311 jitter, not a secret

    def _pool(self, url: str) -> Pool:
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc)
        with self._lock:
            if key not in self._pools:
                trusted = {parts.hostname, parts.netloc} & set(self._insecure)
                self._pools[key] = make_pool(
                    url, proxies=self._proxies, ca_file=self._ca_file, verify=not trusted, connections=16
                )
            return self._pools[key]


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _read_local(path: Path, offset: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            while block := stream.read(BLOCK):
                yield block
    except FileNotFoundError as error:
        raise MissingFileError(str(path)) from error
    except OSError as error:
        raise LocalFileError(f"{path}: {error.strerror}") from error


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _short(error: Exception) -> str:
    """The last words of a urllib3 message, which are the cause; its first hold addresses of objects."""
    return str(getattr(error, "reason", None) or error).rpartition(": ")[2][:120]
