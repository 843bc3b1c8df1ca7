"""HTTP to one origin: the adapter of urllib3, with or without a proxy. Its errors become ours here."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path

import urllib3
from urllib3 import exceptions

from training_imgtool.core.http_pool import make_pool
from training_imgtool.registry.http.addresses import Origin
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport_errors import cause, no_host, not_http, nothing_answers, tls_error


class Response:
    """An answer whose content the caller reads block by block. Close it when done."""

    def __init__(self, origin: Origin, response: urllib3.BaseHTTPResponse) -> None:
        self._origin = origin
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): response.headers[name] for name in response.headers}
        self.challenges: tuple[str, ...] = tuple(response.headers.getlist("WWW-Authenticate"))

    def read(self, most: int) -> bytes:
        """At most that many bytes as soon as there are any; none at the end. Raises PassingError when it breaks."""
        with _translate_errors(self._origin, answered=True):
            return self._response.read1(most, decode_content=False)

    def close(self) -> None:
        """Gives the connection back, or closes it when content is left."""
        self._response.close()
        self._response.release_conn()


class Connections:
    """Pooled connections to one origin. Safe for threads.

    Args:
        origin: scheme, host and port.
        proxies: `http`, `https` and `no`, as in `Settings.proxies`.
        ca_file: a PEM file to trust instead of the system's.
        connections: how many at most; further requests wait for one.
        connect_seconds: limit for a connection to open, TLS included.
        idle_seconds: limit between two blocks.
        answered: origins that have answered in this process, shared by its pools: such an origin is coming back.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        proxies: Mapping[str, str],
        ca_file: Path | None,
        connections: int,
        connect_seconds: float,
        idle_seconds: float,
        answered: set[Origin],
    ) -> None:
        self._origin = origin
        self._pool = make_pool(
            origin.url,
            proxies=proxies,
            ca_file=ca_file,
            connections=connections,
            connect_seconds=connect_seconds,
            read_seconds=idle_seconds,
        )
        self._answered = answered

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        blocks: Iterator[bytes] | None,
        *,
        connect_seconds: float,
        idle_seconds: float,
    ) -> Response:
        """Sends a request and waits for the head of its answer.

        Args:
            method: of the request.
            target: path and query.
            headers: with Content-Length when there is a body of known length; without it the body goes in chunks.
            blocks: the body, or None.
            connect_seconds: limit for a connection to open, TLS included.
            idle_seconds: limit between two blocks.

        Raises:
            PassingError: the connection broke, or time was up.
            RegistryRefusedError: TLS failed.
            TemporaryError: the host's name is unknown, or nothing listens there.
        """
        # urllib3 applies the connect timeout to each block of a body, so a request with one gets the longer limit.
        opening = connect_seconds if blocks is None else max(connect_seconds, idle_seconds)
        with _translate_errors(self._origin, answered=self._origin in self._answered):
            response = self._pool.urlopen(
                method,
                f"{self._origin.url}{target}",
                body=blocks,
                headers={**self._pool.headers, "Accept-Encoding": "identity", **headers},
                timeout=urllib3.Timeout(connect=opening, read=idle_seconds),
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
            )
        self._answered.add(self._origin)
        return Response(self._origin, response)

    def clear(self) -> None:
        """Closes every idle connection, and each other one when its answer is closed."""
        self._pool.clear()


@contextlib.contextmanager
def _translate_errors(origin: Origin, *, answered: bool) -> Iterator[None]:
    """Raises our errors for urllib3's. `answered`: the host has answered before, so it is coming back."""
    try:
        yield
    except exceptions.NameResolutionError as error:
        raise no_host(origin) from error
    except exceptions.LocationParseError as error:  # a label of more than 63 letters is no host name either
        raise no_host(origin) from error
    except exceptions.ProxyError as error:
        raise PassingError(f"cannot be reached through the proxy ({cause(error)})") from error
    except exceptions.SSLError as error:
        raise tls_error(origin, str(error)) from error
    except exceptions.NewConnectionError as error:  # before ConnectTimeoutError, of which urllib3 makes it a subclass
        raise nothing_answers(origin, error, known=answered) from error
    except exceptions.ConnectTimeoutError as error:
        raise PassingError("does not answer: connecting took too long") from error
    except exceptions.TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except (exceptions.HTTPError, OSError) as error:
        reason = error.args[-1] if error.args else None
        if _is_not_http(error) or _is_not_http(reason):
            raise not_http(origin, "answered something that is not HTTP/1") from error
        raise PassingError(f"broke the connection ({cause(error)})") from error


def _is_not_http(error: object) -> bool:
    if isinstance(error, exceptions.InvalidHeader):
        return True
    return isinstance(error, http.client.HTTPException) and not isinstance(
        error, http.client.RemoteDisconnected | http.client.IncompleteRead
    )
