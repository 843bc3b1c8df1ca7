"""A Docker Engine without the classic builder: a real one, except that `POST /build` is answered with 404."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.servers.relay import BLOCK, pass_on, serve

_CLASSIC = re.compile(rb"POST /(?:v[0-9.]+/)?build\?")
_BODY = b'{"message":"page not found"}'
_NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nConnection: close\r\n"
    + f"Content-Length: {len(_BODY)}\r\n\r\n".encode()
    + _BODY
)


@contextmanager
def engine_without_classic_builder(folder: Path, engine: str) -> Iterator[str]:
    """Serves the engine at `unix://…` under another socket in `folder`, whose address it yields."""
    path = folder / "engine.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with serve(listener, partial(_serve, engine=engine.removeprefix("unix://"))):
        yield f"unix://{path}"


def _serve(client: socket.socket, engine: str) -> None:
    with closing(client), closing(socket.socket(socket.AF_UNIX)) as server, suppress(OSError):
        first = client.recv(BLOCK)
        if _CLASSIC.match(first):
            client.sendall(_NOT_FOUND)
            client.shutdown(socket.SHUT_WR)
            while client.recv(BLOCK):
                pass
            return
        server.connect(engine)
        server.sendall(first)
        pass_on(client, server)
