"""Sockets that pass bytes on: a thread for each client, which ends when one side closes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

BLOCK = 1 << 16


@contextmanager
def serve(listener: socket.socket, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Gives every client to `answer`, each in a thread of its own, until the block ends."""
    threading.Thread(target=_accept, args=(listener, answer), daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def pass_on(client: socket.socket, server: socket.socket) -> None:
    """Copies in both directions until both have ended."""
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    back.start()
    _copy(client, server)
    back.join()


def _accept(listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=answer, args=(client,), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(BLOCK):
            target.sendall(block)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
