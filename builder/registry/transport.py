"""One HTTP exchange with a registry, its storage or its token server: no retries, no credentials, no redirects.

Only this module of the registry's knows urllib3's requests and errors. Each origin has two pools: a
blob that is read while another is written must not wait for the writer's connection.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import RegistryRefusedError, TemporaryError
from builder.http_pool import make_pool
from builder.records import dataclass
from builder.registry.addresses import Origin, origin_of, redacted
from builder.registry.retry import PassingError
from builder.registry.text import clean

if TYPE_CHECKING:
    import urllib3

BLOCK = 256 * 1024  # bytes; 8 KiB halves the speed, and a slow link must send one within the idle limit
SMALL = 65536  # bytes of an answer that is not content
_READ = 256 * 1024


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

    def __init__(self, answer: Answer, response: urllib3.BaseHTTPResponse) -> None:
        self.answer = answer
        self._response = response

    def blocks(self) -> Iterator[bytes]:
        """The content; raises PassingError when the connection breaks first."""
        with _foreign_errors(origin_of(self.answer.url)):
            while block := self._response.read1(_READ, decode_content=False):
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
        self._pools: dict[tuple[Origin, bool], urllib3.PoolManager] = {}
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
        import urllib3

        origin = origin_of(url)
        pool = self._pool(origin, reading=reading)
        sent = {**pool.headers, "Accept-Encoding": "identity", **headers}
        if body is not None and body.length is not None:
            sent["Content-Length"] = str(body.length)
        idle = min(self._idle, seconds or self._idle)
        timeout = urllib3.Timeout(connect=self._opening(body, seconds), read=idle)
        with _foreign_errors(origin, known=origin in self._answered):
            response = pool.urlopen(
                method,
                url,
                body=body.open() if body is not None else None,
                headers=sent,
                timeout=timeout,
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
            )
        self._answered.add(origin)
        names = {name.lower(): response.headers[name] for name in response.headers}
        challenges = tuple(response.headers.getlist("WWW-Authenticate"))
        return Download(Answer(method, url, response.status, names, challenges, b""), response)

    def _opening(self, body: Body | None, seconds: float | None) -> float:
        """The limit for connecting. urllib3 holds each block of a body to it too, so a body gets the limit of one."""
        limit = self._connect if body is None else max(self._connect, self._idle)
        return min(limit, seconds or limit)

    def _pool(self, origin: Origin, *, reading: bool) -> urllib3.PoolManager:
        with self._lock:
            pool = self._pools.get((origin, reading))
            if pool is None:
                pool = make_pool(
                    origin.url,
                    proxies=self._proxies,
                    ca_file=self._ca_file,
                    connections=self._connections,
                    connect_seconds=self._connect,
                    read_seconds=self._idle,
                )
                self._pools[origin, reading] = pool
            return pool

    def close(self) -> None:
        """Closes every connection."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.clear()


@contextlib.contextmanager
def _foreign_errors(origin: Origin, *, known: bool = True) -> Iterator[None]:
    """Turns urllib3's errors into ours. `known`: the host has answered before, so it is coming back."""
    from urllib3 import exceptions

    try:
        yield
    except exceptions.NameResolutionError as error:
        raise TemporaryError(
            f"the host {origin.host} cannot be found", hint="check the registry's name and this machine's DNS"
        ) from error
    except exceptions.ProxyError as error:
        raise PassingError(f"cannot be reached through the proxy ({_cause(error)})") from error
    except exceptions.SSLError as error:
        raise _tls_error(origin, str(error)) from error
    except exceptions.NewConnectionError as error:  # before the next: urllib3 counts it as a timeout too
        if known:
            raise PassingError("refuses connections now") from error
        raise TemporaryError(
            f"nothing answers at {redacted(origin.url)} ({_cause(error)})",
            hint="check the registry's name and port, and that it runs",
        ) from error
    except exceptions.ConnectTimeoutError as error:
        raise PassingError("does not answer: connecting took too long") from error
    except exceptions.TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except (exceptions.HTTPError, OSError) as error:
        raise PassingError(f"broke the connection ({_cause(error)})") from error


def _cause(error: BaseException) -> str:
    """The operating system's words for what lies behind urllib3's error."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return errno.errorcode.get(seen.errno or 0, "") and seen.strerror
        inner = seen.args[-1] if seen.args and isinstance(seen.args[-1], BaseException) else None
        seen = inner or seen.__cause__ or seen.__context__
    return "it ended early"


def _tls_error(origin: Origin, text: str) -> RegistryRefusedError:
    where = redacted(origin.url)
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text or "RECORD_LAYER_FAILURE" in text:
        return RegistryRefusedError(
            f"{where} does not speak TLS",
            hint=f"if it is meant to be plain HTTP: IMGTOOL_INSECURE_REGISTRIES={origin.host}:{origin.port}",
        )
    if "expired" in text or "not yet valid" in text:
        return RegistryRefusedError(
            f"{where}: the certificate is not valid now ({clean(text, 160)})", hint="check this machine's clock too"
        )
    if "match" in text and ("Hostname" in text or "hostname" in text or "IP address" in text):
        return RegistryRefusedError(f"{where}: the certificate is for another host ({clean(text, 200)})")
    return RegistryRefusedError(
        f"{where}: the certificate is not trusted ({clean(text, 160)})",
        hint="if it comes from your own CA, name the CA's PEM file in IMGTOOL_CA_FILE",
    )
