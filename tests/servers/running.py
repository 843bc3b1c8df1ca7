"""Servers of this process, each in a thread that ends with its block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import TCPServer
from typing import Self


@contextmanager
def running(server: TCPServer) -> Iterator[str]:
    """Answers requests until the block ends; the server's HOST:PORT."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class Running:
    """What has a server, which answers while its block runs."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._running = running(server)

    @property
    def host(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)
