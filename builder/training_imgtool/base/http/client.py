"""Sends single HTTP requests to registries, package indexes and archives, without retries and credentials."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from training_imgtool.base.errors import VerificationError
from training_imgtool.base.hidden import remember_authorization
from training_imgtool.base.http.addresses import DEFAULT_PORTS, REDIRECTS, Origin, origin_of, redact
from training_imgtool.base.http.errors import proxy_refusal, translate_errors
from training_imgtool.base.http.pool import Pool, Response, find_certificates, make_pool, timeouts
from training_imgtool.base.http.retry import PassingError

BLOCK = 256 * 1024  # bytes; 8 KiB halves the speed, and a slow link must send one within the idle limit
SMALL = 65536  # bytes of an answer that has no blob or file
_ANSWER_SECONDS = 120.0  # to read an answer into memory
_CARRYING = frozenset({"POST", "PUT", "PATCH"})  # Google's front end answers 411 if the length is missing


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a request: `open` returns all blocks anew for each try; without `length`, the body is chunked."""

    open: Callable[[], Iterator[bytes]]
    length: int | None


def bytes_body(data: bytes) -> Body:
    """Makes a body from bytes in memory."""
    return Body(lambda: iter((data,)), len(data))


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer. The names of headers are in lower case.

    Attributes:
        method: the method of the request.
        url: the URL that answered.
        status: the status code, such as 200.
        headers: the headers by name; commas join several headers of one name.
        challenges: the WWW-Authenticate headers, one by one.
        body: the content up to the caller's limit; empty for a streamed answer.
        complete: whether `body` is all of it.
        response: the connection that a streamed answer's content comes from.
    """

    method: str
    url: str
    status: int
    headers: Mapping[str, str]
    challenges: tuple[str, ...]
    body: bytes = b""
    complete: bool = True
    response: Response | None = field(default=None, repr=False, compare=False)

    def blocks(self) -> Iterator[bytes]:
        """Yields the content of a streamed answer as it arrives; raises PassingError if the connection breaks."""
        while self.response is not None:
            with translate_errors(origin_of(self.url), answered=True, proxy=None):
                block = self.response.read1(BLOCK, decode_content=False)
            if not block:
                return
            yield block

    def close(self) -> None:
        """Returns the connection of a streamed answer to the pool, or closes it if content is left."""
        if self.response is not None:
            self.response.close()
            self.response.release_conn()


class Client:
    """Sends requests over pooled connections. Threads may share a client; the last user closes it.

    Each origin has two sets of connections, one for reading and one for writing, so that reading a blob never waits for
    connections that upload other blobs.

    Args:
        proxies: `http`, `https`, `no`.
        ca_file: a PEM file of certificates to trust instead of the system's.
        certificates: folders with certificates for single hosts, as `find_certificates` reads them.
        unverified: hosts, `HOST` or `HOST:PORT`, whose certificates imgtool does not check.
        connections: per host, for each of reading and writing; further requests wait for one.
        connect_seconds: limit for a connection to open, TLS included.
        idle_seconds: limit for the head of an answer, and for each few kilobytes of its content.
        answer_seconds: limit for reading an answer's content into memory.
        clock: returns seconds.
    """

    def __init__(
        self,
        *,
        proxies: Mapping[str, str],
        ca_file: Path | None,
        certificates: tuple[Path, ...] = (),
        unverified: tuple[str, ...] = (),
        connections: int = 8,
        connect_seconds: float = 10.0,
        idle_seconds: float = 60.0,
        answer_seconds: float = _ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proxies = proxies
        self._ca_file = ca_file
        self._certificates = certificates
        self._unverified = frozenset(unverified)
        self._connections = connections
        self._connect = connect_seconds
        self._idle = idle_seconds
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._pools: dict[tuple[Origin, bool], Pool] = {}
        self._answered: set[Origin] = set()
        self._lock = threading.Lock()

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Body | None = None,
        limit: int = SMALL,
        seconds: float | None = None,
        stream: bool = False,
    ) -> Answer:
        """Sends one request; neither retries nor follows redirects.

        Args:
            method: the HTTP method.
            url: an absolute URL.
            headers: the headers; `send` adds Content-Length if it is known, otherwise the body is chunked.
            body: the content to send.
            limit: bytes of content to read; an answer with more content is not `complete`.
            seconds: shortens the limits for connecting and between blocks.
            stream: leaves the content of a 200 or 206 to the caller, who reads `blocks` and closes the answer. Such
                an answer uses a connection for reading.

        Raises: see `translate_errors`.
        """
        remember_authorization(headers.get("Authorization", ""))
        origin = origin_of(url)
        length = body.length if body is not None else 0 if method in _CARRYING else None
        counted = {} if length is None else {"Content-Length": str(length)}
        pool = self._pool(origin, reading=stream)
        proxy = f"{pool.proxy.host}:{pool.proxy.port}" if pool.proxy else None
        connect, idle = (min(most, seconds or most) for most in (self._connect, self._idle))
        if body is not None:
            connect = max(connect, idle)  # urllib3 applies the connect timeout to each block of a body
        with translate_errors(origin, answered=origin in self._answered, proxy=proxy):
            response = pool.urlopen(
                method,
                f"{origin.url}{_target(url)}",
                body=body.open() if body is not None else None,
                headers={**pool.headers, "Accept-Encoding": "identity", **headers, **counted},
                timeout=timeouts(connect, idle),
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
            )
        if response.status == 407 and proxy:
            response.close()
            raise proxy_refusal(proxy, response.status)
        self._answered.add(origin)
        found = {name.lower(): response.headers[name] for name in response.headers}
        challenges = tuple(response.headers.getlist("WWW-Authenticate"))
        answer = Answer(method, url, response.status, found, challenges, response=response)
        return answer if stream and response.status in {200, 206} else self._read(answer, limit)

    def follow(
        self,
        method: str,
        url: str,
        *,
        headers: Callable[[str], Mapping[str, str]] = lambda _: {},
        limit: int = SMALL,
        stream: bool = False,
    ) -> Answer:
        """Sends a request and follows redirects to any http or https address; `headers` returns the headers for a URL.

        Raises VerificationError for a redirect to another scheme, and what `send` raises.
        """
        for _ in range(REDIRECTS + 1):
            answer = self.send(method, url, headers=headers(url), limit=limit, stream=stream)
            location = answer.headers.get("location")
            if answer.status not in {301, 302, 303, 307, 308} or not location:
                break
            target = urljoin(url, location)
            if urlsplit(target).scheme not in DEFAULT_PORTS or not urlsplit(target).netloc:
                raise VerificationError(
                    f"{urlsplit(url).netloc} redirects to {redact(target)[:200]!r}; imgtool follows http and https only"
                )
            url = target
        return answer

    def _read(self, answer: Answer, limit: int) -> Answer:
        content = bytearray()
        stop = self._clock() + self._answer_seconds
        try:
            for block in answer.blocks():
                content += block
                if len(content) > limit:
                    break
                if self._clock() > stop:
                    raise PassingError(f"took longer than {self._answer_seconds:.0f} s to answer", tries=2)
        finally:
            answer.close()
        return replace(answer, body=bytes(content[:limit]), complete=len(content) <= limit, response=None)

    def _pool(self, origin: Origin, *, reading: bool) -> Pool:
        with self._lock:
            pool = self._pools.get((origin, reading))
            if pool is None:
                pool = self._pools[origin, reading] = make_pool(
                    origin.url,
                    proxies=self._proxies,
                    ca_file=self._ca_file,
                    certificates=find_certificates(self._certificates, origin) if origin.scheme == "https" else None,
                    connections=self._connections,
                    verify=self._unverified.isdisjoint({origin.host, *origin.names}),
                )
            return pool

    def close(self) -> None:
        """Closes every idle connection at once, and each other connection when its answer is closed."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.clear()


def _target(url: str) -> str:
    """Returns the path and query for a request line, with forbidden characters encoded."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return quote(target, safe="/?:@!$&'()*+,;=%-._~[]")
