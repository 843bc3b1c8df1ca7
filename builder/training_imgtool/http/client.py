"""One HTTP exchange with a registry, its storage or its token server: no retries, no credentials, no redirects.

Each origin has two sets of connections: a blob that is read while another is written must not wait for the writer's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from training_imgtool.http.addresses import Origin, origin_of
from training_imgtool.http.errors import proxy_refusal, translate_errors
from training_imgtool.http.pool import Pool, Response, find_certificates, make_pool, timeouts
from training_imgtool.http.retry import PassingError

BLOCK = 256 * 1024  # bytes; 8 KiB halves the speed, and a slow link must send one within the idle limit
SMALL = 65536  # bytes of an answer that is not content
_ANSWER_SECONDS = 120.0  # for an answer that is read into memory
_CARRYING = frozenset({"POST", "PUT", "PATCH"})  # Google's front end answers 411 where the length is not said


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries: `open` gives fresh blocks for every try; `length` None means chunked."""

    open: Callable[[], Iterator[bytes]]
    length: int | None


def bytes_body(data: bytes) -> Body:
    """A body that is in memory."""
    return Body(lambda: iter((data,)), len(data))


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer. Header names are lower case; `body` ends at the caller's limit."""

    method: str
    url: str
    status: int
    headers: Mapping[str, str]
    challenges: tuple[str, ...]
    body: bytes
    complete: bool = True


class Download:
    """An answer whose content the caller reads block by block. Close it, or read it to its end."""

    def __init__(self, method: str, url: str, response: Response) -> None:
        headers = {name.lower(): response.headers[name] for name in response.headers}
        challenges = tuple(response.headers.getlist("WWW-Authenticate"))
        self.answer = Answer(method, url, response.status, headers, challenges, b"")
        self._response = response

    def blocks(self) -> Iterator[bytes]:
        """The content, each block as soon as it arrives; raises PassingError when the connection breaks first."""
        while True:
            with translate_errors(origin_of(self.answer.url), answered=True, proxy=None):
                block = self._response.read1(BLOCK, decode_content=False)
            if not block:
                return
            yield block

    def close(self) -> None:
        """Gives the connection back, or closes it when content is left."""
        self._response.close()
        self._response.release_conn()


class Transport:
    """Sends requests over pooled connections. Safe for threads; one per process.

    Args:
        proxies: `http`, `https`, `no`.
        ca_file: a PEM file to trust instead of the system's.
        certificates: folders with certificates of single hosts, as `find_certificates` reads them.
        connections: per host, for each of reading and writing; further requests wait for one.
        connect_seconds: limit for a connection to open, TLS included.
        idle_seconds: limit between two blocks.
        answer_seconds: limit for an answer that is read into memory, once its head is there.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        proxies: Mapping[str, str],
        ca_file: Path | None,
        certificates: tuple[Path, ...] = (),
        connections: int = 8,
        connect_seconds: float = 10.0,
        idle_seconds: float = 60.0,
        answer_seconds: float = _ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proxies = proxies
        self._ca_file = ca_file
        self._certificates = certificates
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
    ) -> Answer:
        """One exchange; content beyond `limit` bytes is not read (`complete` is then false).

        `seconds` shortens the limits for connecting and between blocks. Raises as `open`.
        """
        download = self.open(method, url, headers=headers, body=body, seconds=seconds)
        try:
            content = bytearray()
            stop = self._clock() + self._answer_seconds
            for block in download.blocks():
                content += block
                if len(content) > limit:
                    break
                if self._clock() > stop:
                    raise PassingError(f"took longer than {self._answer_seconds:.0f} s to answer")
        finally:
            download.close()
        head, cut = download.answer, len(content) > limit
        return Answer(method, url, head.status, head.headers, head.challenges, bytes(content[:limit]), complete=not cut)

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Body | None = None,
        seconds: float | None = None,
        reading: bool = False,
    ) -> Download:
        """Sends a request and waits for the head of its answer, whose content the caller reads.

        Args:
            method: of the request.
            url: absolute.
            headers: Content-Length is added where it is known; without it a body goes in chunks.
            body: what to send.
            seconds: shortens the limits for connecting and between blocks.
            reading: takes a connection of the set for reading.

        Raises: see `translate_errors`.
        """
        origin, sent = origin_of(url), dict(headers)
        if body is None and method in _CARRYING:
            sent["Content-Length"] = "0"
        elif body is not None and body.length is not None:
            sent["Content-Length"] = str(body.length)
        pool = self._pool(origin, reading=reading)
        proxy = f"{pool.proxy.host}:{pool.proxy.port}" if pool.proxy else None
        connect, idle = (min(limit, seconds or limit) for limit in (self._connect, self._idle))
        if body is not None:
            connect = max(connect, idle)  # urllib3 applies the connect timeout to each block of a body
        with translate_errors(origin, answered=origin in self._answered, proxy=proxy):
            response = pool.urlopen(
                method,
                f"{origin.url}{_target(url)}",
                body=body.open() if body is not None else None,
                headers={**pool.headers, "Accept-Encoding": "identity", **sent},
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
        return Download(method, url, response)

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
                )
            return pool

    def close(self) -> None:
        """Closes every idle connection, and each other one when its answer is closed."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.clear()


def _target(url: str) -> str:
    """What a request line asks for: path and query, with what may not stand there encoded."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return quote(target, safe="/?:@!$&'()*+,;=%-._~[]")
