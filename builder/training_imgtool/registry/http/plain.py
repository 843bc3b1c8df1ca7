"""HTTP to one origin without a proxy, over connections that stay open.

A start has to be quick: urllib3 takes 20 ms to load, and TLS alone 3 ms. What is behind a proxy goes through
`registry.http.urllib3_client`. Both answer alike and raise alike.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_imgtool.registry.http.addresses import DEFAULT_PORTS, Origin
from training_imgtool.registry.http.http1 import BrokenError, Incoming, NotHttpError, send_request
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport_errors import cause, no_host, not_http, nothing_answers

if TYPE_CHECKING:
    from training_imgtool.registry.http.tls import Tls


class PlainResponse:
    """An answer whose content is read block by block. Close it when done; content that is left costs the connection."""

    def __init__(self, wire: PlainWire, connection: socket.socket, answer: Incoming) -> None:
        self._wire: PlainWire | None = wire
        self._connection = connection
        self._answer = answer
        self.status = answer.status
        joined: dict[str, str] = {}
        for name, value in answer.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        self.headers: Mapping[str, str] = joined
        self.challenges = tuple(value for name, value in answer.fields if name == "www-authenticate")

    def read(self, most: int) -> bytes:
        """At most that many bytes as soon as there are any; none at the end. Raises PassingError when it breaks."""
        with broken_connection():
            return self._answer.read(most)

    def close(self) -> None:
        """Gives the connection back; once."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.give(self._connection, reusable=self._answer.whole and self._answer.lasting)


class PlainWire:
    """Connections to one origin. Safe for threads.

    Args:
        origin: scheme, host and port.
        ca_file: a PEM file to trust instead of the system's.
        connections: how many at most; further requests wait for one.
        user_agent: of every request.
        answered: origins that answered before, shared by the wires of one process: such a one is coming back.
    """

    def __init__(
        self, origin: Origin, *, ca_file: Path | None, connections: int, user_agent: str, answered: set[Origin]
    ) -> None:
        self._origin = origin
        self._tls = _tls(origin, ca_file) if origin.scheme == "https" else None
        self._slots = threading.BoundedSemaphore(connections)
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._headers = {"Host": _host(origin), "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._answered = answered
        self._over = False

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
    ) -> PlainResponse:
        """Sends a request and waits for the head of its answer.

        Args:
            method: of the request.
            target: path and query.
            headers: with Content-Length when there is a body of known length.
            blocks: the body, or None.
            chunked: send the body in chunks, as its length is not known.
            connect_seconds: limit for a connection to open, TLS included.
            idle_seconds: limit between two blocks.

        Raises:
            PassingError: the connection broke, or time was up.
            RegistryRefusedError: TLS failed.
            TemporaryError: the host's name is unknown, or nothing listens there.
        """
        self._slots.acquire()
        connection: socket.socket | None = None
        try:
            connection = self._taken() or self._opened(connect_seconds)
            connection.settimeout(idle_seconds)
            with broken_connection(asked=self._origin):
                sent = {**self._headers, **headers}
                answer = _exchanged(connection, method, target, sent, blocks or iter(()), chunked=chunked)
            self._answered.add(self._origin)
            return PlainResponse(self, connection, answer)
        except BaseException:
            if connection is not None:
                connection.close()
            self._slots.release()
            raise

    def give(self, connection: socket.socket, *, reusable: bool) -> None:
        """Takes a connection back from an answer."""
        with self._lock:
            kept = reusable and not self._over
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()
        self._slots.release()

    def clear(self) -> None:
        """Closes the connections that nobody uses, and from now on every other when it comes back."""
        with self._lock:
            self._over = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was never finished
            self.clear()

    def _taken(self) -> socket.socket | None:
        """A connection that is open and silent; the others were closed by the server."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()

    def _opened(self, seconds: float) -> socket.socket:
        try:
            name = _name(self._origin.host)
            connection = socket.create_connection((name, self._origin.port), seconds)
        except (OSError, UnicodeError) as error:
            raise self._unopened(error) from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap(connection, name) if self._tls is not None else connection
        except OSError as error:
            connection.close()
            raise self._unopened(error) from error
        except BaseException:
            connection.close()
            raise

    def _unopened(self, error: OSError | UnicodeError) -> Exception:
        """What it means that a connection did not open."""
        if isinstance(error, socket.gaierror | UnicodeError):  # a label of more than 63 letters is no name either
            return no_host(self._origin)
        if isinstance(error, TimeoutError):
            return PassingError("does not answer: connecting took too long")
        if isinstance(error, ConnectionResetError):
            return PassingError(f"broke the connection ({cause(error)})")
        return nothing_answers(self._origin, error, known=self._origin in self._answered)


def _exchanged(
    connection: socket.socket,
    method: str,
    target: str,
    headers: Mapping[str, str],
    blocks: Iterator[bytes],
    *,
    chunked: bool,
) -> Incoming:
    """The answer to a request, its head read; what a server says before it hangs up in a body is a refusal, often."""
    answer = Incoming(connection, method)
    try:
        send_request(connection, method, target, headers, blocks, chunked=chunked)
    except (BrokenPipeError, ConnectionResetError) as error:
        try:
            answer.read_head()
        except (BrokenError, OSError):
            raise error from None
        answer.lasting = False
        return answer
    answer.read_head()
    return answer


@contextlib.contextmanager
def broken_connection(asked: Origin | None = None) -> Iterator[None]:
    """Turns what an open connection raises into PassingError; with `asked`, whoever is there has not answered yet."""
    try:
        yield
    except TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except BrokenError as error:
        if asked is not None and isinstance(error, NotHttpError):
            raise not_http(asked, str(error)) from error
        raise PassingError(str(error)) from error
    except OSError as error:
        raise PassingError(f"broke the connection ({cause(error)})") from error


def _tls(origin: Origin, ca_file: Path | None) -> Tls:
    from training_imgtool.registry.http.tls import Tls

    return Tls(origin, ca_file)


def _host(origin: Origin) -> str:
    """The Host header: without the port that the scheme means anyway."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return host if origin.port == DEFAULT_PORTS[origin.scheme] else f"{host}:{origin.port}"


def _name(host: str) -> Any:
    """A host as the system takes it: bytes, since for text Python loads the rules for names of other scripts, 1 ms."""
    return host.encode() if host.isascii() else host
