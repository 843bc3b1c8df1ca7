"""A remote BuildKit over TCP: passes connections on to the BuildKit that a Docker Engine serves at `/grpc`.

`docker buildx create --driver remote tcp://127.0.0.1:PORT` takes it for a buildkitd. It counts what clients send.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.make.engines.support import in_network_of

_UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
_BLOCK = 1 << 16


class BuildKitProxy:
    """The proxy; `received` is how many bytes clients sent, `seen` which of `needles` were among them."""

    def __init__(self, listener: socket.socket, engine: str, *, upgrade: bool = True) -> None:
        self.received = 0
        self.seen: set[bytes] = set()  # those of `needles` that clients sent
        self.needles: tuple[bytes, ...] = ()
        name = listener.getsockname()
        self.address = f"unix://{name}" if isinstance(name, str) else f"tcp://127.0.0.1:{name[1]}"
        self._upgrade = upgrade
        self._listener = listener
        self._engine = engine.removeprefix("unix://")
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), closing(socket.socket(socket.AF_UNIX)) as builder, suppress(OSError):
            builder.connect(self._engine)
            if self._upgrade and not _upgraded(builder):
                return
            self._open |= {client, builder}
            back = threading.Thread(target=self._copy, args=(builder, client), daemon=True)
            back.start()
            self._copy(client, builder, count=True)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket, *, count: bool = False) -> None:
        before = b""
        with suppress(OSError):
            while block := source.recv(_BLOCK):
                if count:
                    with self._lock:
                        self.received += len(block)
                        self.seen |= {needle for needle in self.needles if needle in before + block}
                    before = block[-256:]
                target.sendall(block)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends every connection, as the end of a builder does."""
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _upgraded(builder: socket.socket) -> bool:
    builder.sendall(_UPGRADE)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += builder.recv(1)
    return b" 101 " in answer.splitlines()[0]


@contextmanager
def engine_proxy(engine: str, path: Path) -> Iterator[BuildKitProxy]:
    """Serves the whole engine at `unix://…` under another socket; buildx' docker driver finds BuildKit there."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    proxy = BuildKitProxy(listener, engine, upgrade=False)
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def buildkit_proxy(engine: str, *, beside: int) -> Iterator[BuildKitProxy]:
    """Serves the BuildKit of the engine at `unix://…` on a port of 127.0.0.1, in the network of process `beside`."""

    def listen() -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    proxy = BuildKitProxy(in_network_of(beside, listen), engine)
    try:
        yield proxy
    finally:
        proxy.close()
