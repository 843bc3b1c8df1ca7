"""A server that answers with the bytes it is told to, and a client of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

from training_imgtool.base.http.addresses import Origin
from training_imgtool.base.http.client import Answer, Body, Client

HANG_UP = None


class Bytes:
    """Answers the requests of each connection with the next of `answers`; HANG_UP closes the connection instead.

    It answers when the headers have arrived; `hang_up_after` ends the connection after the first answer.
    `pause` is the time in seconds between two pieces of `piece` bytes.
    """

    def __init__(self, *answers: bytes | None, hang_up_after: bool = False, pause: float = 0, piece: int = 1) -> None:
        self._answers = list(answers)
        self._hang_up_after, self._pause, self._piece = hang_up_after, pause, piece
        self.connections = 0
        self.heads: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.origin = Origin("http", "127.0.0.1", self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    block = connection.recv(65536)
                    if not block:
                        return
                    head += block
                self.heads.append(head)
                answer = self._answers.pop(0) if self._answers else HANG_UP
                if answer is HANG_UP:
                    return
                size = self._piece if self._pause else max(1, len(answer))
                for block in (answer[at : at + size] for at in range(0, len(answer), size)):
                    connection.sendall(block)
                    time.sleep(self._pause)
                if self._hang_up_after:
                    connection.shutdown(socket.SHUT_WR)
                    return

    def client(self, connections: int = 2, idle: float = 5) -> Client:
        return Client(proxies={}, ca_file=None, connections=connections, connect_seconds=5, idle_seconds=idle)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


def ask(server: Bytes, client: Client, method: str = "GET", body: Body | None = None, **headers: str) -> Answer:
    return client.send(method, f"{server.origin.url}/x", headers=headers, body=body, stream=True)


def content(answer: Answer) -> bytes:
    data = b"".join(answer.blocks())
    answer.close()
    return data


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
