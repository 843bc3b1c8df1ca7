"""A Docker Engine without the classic builder: a real one, except that `POST /build` is answered with 404."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_BLOCK = 1 << 16
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
    threading.Thread(target=_accept, args=(listener, engine.removeprefix("unix://")), daemon=True).start()
    try:
        yield f"unix://{path}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, engine: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, engine), daemon=True).start()


def _serve(client: socket.socket, engine: str) -> None:
    with closing(client), closing(socket.socket(socket.AF_UNIX)) as server, suppress(OSError):
        first = client.recv(_BLOCK)
        if _CLASSIC.match(first):
            client.sendall(_NOT_FOUND)
            client.shutdown(socket.SHUT_WR)
            while client.recv(_BLOCK):
                pass
            return
        server.connect(engine)
        server.sendall(first)
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
