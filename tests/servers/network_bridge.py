"""Ways out of a network namespace: a port of this machine, and an HTTP proxy for the containers there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

from tests.make.engines.support import in_network_of
from tests.servers.relay import BLOCK, pass_on, serve

Connect = Callable[[socket.socket], tuple[socket.socket, bytes]]


@contextmanager
def forward_port(host: str, *, beside: int) -> Iterator[None]:
    """Serves HOST:PORT of this machine's network under the same name in the network of the process `beside`."""
    name, _, port = host.rpartition(":")

    def connect(_: socket.socket) -> tuple[socket.socket, bytes]:
        return socket.create_connection((name, int(port))), b""

    with _serve((name, int(port)), connect, beside):
        yield


@contextmanager
def proxy_http(address: str, *, beside: int) -> Iterator[str]:
    """Serves an HTTP proxy at an address in the network of the process `beside`; yields its URL."""
    with _serve((address, 0), _answer_proxy, beside) as port:
        yield f"http://{address}:{port}"


def _answer_proxy(client: socket.socket) -> tuple[socket.socket, bytes]:
    """Reads one request and connects to its server; what is sent there first is the request without its host."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += client.recv(BLOCK)
    first, _, rest = request.partition(b"\r\n")
    method, target, version = first.decode().split()
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        return server, b""
    parts = urlsplit(target)
    server = socket.create_connection((parts.hostname or "", parts.port or 80))
    lines = [line for line in rest.split(b"\r\n") if not line.lower().startswith((b"proxy-", b"connection:"))]
    path = f"{method} {parts.path or '/'}{f'?{parts.query}' if parts.query else ''} {version}\r\nConnection: close\r\n"
    return server, path.encode() + b"\r\n".join(lines)


@contextmanager
def _serve(address: tuple[str, int], connect: Connect, beside: int) -> Iterator[int]:
    listener = in_network_of(beside, lambda: socket.create_server(address))
    with serve(listener, partial(_pass, connect=connect)):
        yield int(listener.getsockname()[1])


def _pass(client: socket.socket, connect: Connect) -> None:
    with closing(client), suppress(OSError, ValueError):
        server, first = connect(client)
        with closing(server):
            server.sendall(first)
            pass_on(client, server)
