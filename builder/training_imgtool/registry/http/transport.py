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

from training_imgtool.registry.http.addresses import Origin, origin_of
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.urllib3_client import Connections, Response

BLOCK = 256 * 1024  # bytes; 8 KiB halves the speed, and a slow link must send one within the idle limit
SMALL = 65536  # bytes of an answer that is not content
_READ = 256 * 1024
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
    """A server's answer. Header names are lower case; `body` is cut at the limit asked for."""

    method: str
    url: str
    status: int
    headers: Mapping[str, str]
    challenges: tuple[str, ...]
    body: bytes
    complete: bool = True


class Download:
    """An answer whose content is read block by block. Close it, or read it to its end."""

    def __init__(self, answer: Answer, response: Response) -> None:
        self.answer = answer
        self._response = response

    def blocks(self) -> Iterator[bytes]:
        """The content; raises PassingError when the connection breaks first."""
        while block := self._response.read(_READ):
            yield block

    def close(self) -> None:
        """Gives the connection back, or closes it when content is left."""
        self._response.close()


class Transport:
    """Sends requests over pooled connections. Safe for threads; one per process.

    Args:
        proxies: `http`, `https`, `no`.
        ca_file: a PEM file to trust instead of the system's.
        connections: per host, for each of reading and writing.
        connect_seconds: limit for a connection to open.
        idle_seconds: limit between two blocks.
        total_seconds: limit for one answer.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        proxies: Mapping[str, str],
        ca_file: Path | None,
        connections: int = 8,
        connect_seconds: float = 10.0,
        idle_seconds: float = 60.0,
        total_seconds: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proxies = proxies
        self._ca_file = ca_file
        self._connections = connections
        self._connect = connect_seconds
        self._idle = idle_seconds
        self._total = total_seconds
        self._clock = clock
        self._pools: dict[tuple[Origin, bool], Connections] = {}
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

        `seconds` shortens the limits for connecting and between blocks.

        Raises:
            PassingError: the connection broke, or time was up.
            RegistryRefusedError: TLS failed.
            TemporaryError: the host's name is unknown, or nothing listens there.
        """
        download = self._open(method, url, headers, body, seconds=seconds)
        try:
            content = bytearray()
            stop = self._clock() + self._total
            for block in download.blocks():
                content += block
                if len(content) > limit:
                    break
                if self._clock() > stop:
                    raise PassingError(f"took longer than {self._total:.0f} s to answer")
        finally:
            download.close()
        answer = download.answer
        cut = len(content) > limit
        return Answer(
            method, url, answer.status, answer.headers, answer.challenges, bytes(content[:limit]), complete=not cut
        )

    def download(self, url: str, *, headers: Mapping[str, str]) -> Download:
        """A GET whose content the caller reads. Raises as `send` does."""
        return self._open("GET", url, headers, None, reading=True)

    def _open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body | None,
        *,
        reading: bool = False,
        seconds: float | None = None,
    ) -> Download:
        sent = dict(headers)
        if body is None:
            if method in _CARRYING:
                sent["Content-Length"] = "0"
        elif body.length is not None:
            sent["Content-Length"] = str(body.length)
        response = self._pool(origin_of(url), reading=reading).request(
            method,
            _target(url),
            sent,
            body.open() if body is not None else None,
            connect_seconds=min(self._connect, seconds or self._connect),
            idle_seconds=min(self._idle, seconds or self._idle),
        )
        return Download(Answer(method, url, response.status, response.headers, response.challenges, b""), response)

    def _pool(self, origin: Origin, *, reading: bool) -> Connections:
        with self._lock:
            pool = self._pools.get((origin, reading))
            if pool is None:
                pool = self._pools[origin, reading] = Connections(
                    origin,
                    proxies=self._proxies,
                    ca_file=self._ca_file,
                    connections=self._connections,
                    connect_seconds=self._connect,
                    idle_seconds=self._idle,
                    answered=self._answered,
                )
            return pool

    def close(self) -> None:
        """Closes every connection."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.clear()


def _target(url: str) -> str:
    """What a request line asks for: path and query, with what may not stand there encoded."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return quote(target, safe="/?:@!$&'()*+,;=%-._~[]")
