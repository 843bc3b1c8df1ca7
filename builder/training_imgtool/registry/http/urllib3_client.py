"""HTTP to one origin through a proxy: urllib3, which knows tunnels and proxies that want TLS themselves.

Answers and raises as `registry.http.plain` does, and is loaded only where a proxy is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.core.http_pool import make_pool
from training_imgtool.registry.http.addresses import Origin
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport_errors import cause, no_host, nothing_answers, tls_error

if TYPE_CHECKING:
    import urllib3


class ProxiedResponse:
    """An answer whose content is read block by block. Close it when done."""

    def __init__(self, origin: Origin, response: urllib3.BaseHTTPResponse) -> None:
        self._origin = origin
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): response.headers[name] for name in response.headers}
        self.challenges: tuple[str, ...] = tuple(response.headers.getlist("WWW-Authenticate"))

    def read(self, most: int) -> bytes:
        """At most that many bytes as soon as there are any; none at the end. Raises PassingError when it breaks."""
        with _foreign_errors(self._origin):
            return self._response.read1(most, decode_content=False)

    def close(self) -> None:
        """Gives the connection back, or closes it when content is left."""
        self._response.close()
        self._response.release_conn()


class ProxiedWire:
    """Connections to one origin through the proxy that the settings name; arguments as for `PlainWire`."""

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
        chunked: bool,
        connect_seconds: float,
        idle_seconds: float,
    ) -> ProxiedResponse:
        """As `PlainWire.request`."""
        import urllib3

        del chunked  # urllib3 does so where there is no Content-Length
        # urllib3 holds each block of a body to the limit for connecting too, so a body gets the limit of one.
        opening = connect_seconds if blocks is None else max(connect_seconds, idle_seconds)
        with _foreign_errors(self._origin, known=self._origin in self._answered):
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
        return ProxiedResponse(self._origin, response)

    def clear(self) -> None:
        """Closes every connection."""
        self._pool.clear()


@contextlib.contextmanager
def _foreign_errors(origin: Origin, *, known: bool = True) -> Iterator[None]:
    """Turns urllib3's errors into ours. `known`: the host has answered before, so it is coming back."""
    from urllib3 import exceptions

    try:
        yield
    except exceptions.NameResolutionError as error:
        raise no_host(origin) from error
    except exceptions.ProxyError as error:
        raise PassingError(f"cannot be reached through the proxy ({cause(error)})") from error
    except exceptions.SSLError as error:
        raise tls_error(origin, str(error)) from error
    except exceptions.NewConnectionError as error:  # before the next: urllib3 counts it as a timeout too
        raise nothing_answers(origin, error, known=known) from error
    except exceptions.ConnectTimeoutError as error:
        raise PassingError("does not answer: connecting took too long") from error
    except exceptions.TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except (exceptions.HTTPError, OSError) as error:
        raise PassingError(f"broke the connection ({cause(error)})") from error
