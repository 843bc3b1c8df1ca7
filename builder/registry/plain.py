"""HTTP to one origin without a proxy, over connections that stay open: `http.client` of the standard library.

A start has to be quick: urllib3 takes 13 ms to load, an eighth of a run with nothing to do. What is behind a proxy goes
through `builder.registry.proxied`. Both answer alike and raise alike.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from builder.errors import LocalFileError
from builder.registry.addresses import Origin
from builder.registry.retry import PassingError
from builder.registry.transport_errors import cause, no_host, nothing_answers, tls_error


class PlainResponse:
    """An answer whose content is read block by block. Close it when done; content that is left costs the connection."""

    def __init__(
        self, wire: PlainWire, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> None:
        self._wire: PlainWire | None = wire
        self._connection = connection
        self._answer = answer
        self._whole = answer.length == 0 and not answer.chunked
        self.status = answer.status
        self.headers: Mapping[str, str] = {
            name.lower(): ", ".join(answer.headers.get_all(name, ())) for name in answer.headers
        }
        self.challenges: tuple[str, ...] = tuple(answer.headers.get_all("WWW-Authenticate", ()))

    def read(self, most: int) -> bytes:
        """At most that many bytes as soon as there are any; none at the end. Raises PassingError when it breaks."""
        if self._whole:
            return b""
        with broken_connection():
            block = self._answer.read1(most)
        if not block:
            if self._answer.length:
                raise PassingError("broke the connection (it ended early)")
            self._whole = True
        return block

    def close(self) -> None:
        """Gives the connection back; once."""
        wire, self._wire = self._wire, None
        if wire is not None:
            reusable = self._whole and not self._answer.will_close
            self._answer.close()
            wire.give(self._connection, reusable=reusable)


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
        self._tls = _context(ca_file) if origin.scheme == "https" else None
        self._slots = threading.BoundedSemaphore(connections)
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._user_agent = user_agent
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
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._taken() or self._opened(connect_seconds)
            connection.sock.settimeout(idle_seconds)
            with broken_connection():
                answer = self._sent(connection, method, target, headers, blocks, chunked=chunked)
            self._answered.add(self._origin)
            return PlainResponse(self, connection, answer)
        except BaseException:
            if connection is not None:
                connection.close()
            self._slots.release()
            raise

    def give(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
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

    def _taken(self) -> http.client.HTTPConnection | None:
        """A connection that is open and silent; the others were closed by the server."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()

    def _opened(self, seconds: float) -> http.client.HTTPConnection:
        origin = self._origin
        connection = (
            http.client.HTTPSConnection(origin.host, origin.port, timeout=seconds, context=self._tls)
            if self._tls is not None
            else http.client.HTTPConnection(origin.host, origin.port, timeout=seconds)
        )
        try:
            name = _name(connection.host)
            connection.sock = socket.create_connection((name, connection.port), seconds)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=name)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError | UnicodeError):
                raise self._unopened(error) from error
            raise
        return connection

    def _unopened(self, error: OSError | UnicodeError) -> Exception:
        """What it means that a connection did not open."""
        if isinstance(error, socket.gaierror | UnicodeError):  # a label of more than 63 letters is no name either
            return no_host(self._origin)
        if isinstance(error, TimeoutError):
            return PassingError("does not answer: connecting took too long")
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return tls_error(self._origin, str(error))
        if isinstance(error, ssl.SSLError | ConnectionResetError):
            return PassingError(f"broke the connection ({cause(error)})")
        return nothing_answers(self._origin, error, known=self._origin in self._answered)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        blocks: Iterator[bytes] | None,
        *,
        chunked: bool,
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in {"Accept-Encoding": "identity", "User-Agent": self._user_agent, **headers}.items():
            connection.putheader(name, value)
        if chunked:
            connection.putheader("Transfer-Encoding", "chunked")
        try:
            connection.endheaders()
            for block in blocks or ():
                connection.send(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
            if chunked:
                connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError) as error:
            return _early(connection, error)
        return connection.getresponse()


def _early(connection: http.client.HTTPConnection, error: OSError) -> http.client.HTTPResponse:
    """What a server said before it hung up in the middle of a body: a refusal, often."""
    try:
        answer = connection.getresponse()
    except (http.client.HTTPException, OSError):
        raise error from None
    answer.will_close = True
    return answer


@contextlib.contextmanager
def broken_connection() -> Iterator[None]:
    """Turns what an open connection raises into PassingError."""
    try:
        yield
    except TimeoutError as error:
        raise PassingError("sent nothing for too long") from error
    except (http.client.HTTPException, OSError) as error:
        raise PassingError(f"broke the connection ({cause(error)})") from error


def _context(ca_file: Path | None) -> ssl.SSLContext:
    """One context for all connections, since reading a bundle of authorities takes 20 ms."""
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise LocalFileError(
            f"{ca_file}: not a PEM file of certificates ({error.strerror or error})",
            hint="check IMGTOOL_CA_FILE, SSL_CERT_FILE and REQUESTS_CA_BUNDLE",
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _name(host: str) -> Any:
    """A host as the system takes it: bytes, since for text Python loads the rules for names of other scripts, 1 ms."""
    return host.encode() if host.isascii() else host
