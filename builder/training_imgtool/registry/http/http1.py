"""HTTP/1.1 over an open connection: requests are written here, answers are read by llhttp, the parser of Node.js.

The standard library's `http.client` needs 10 ms to load what it reads mail and TLS with, a tenth of a whole push.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_LARGEST_HEAD = 256 * 1024  # bytes of an answer before its content
_BLOCK = 64 * 1024  # bytes


class BrokenError(Exception):
    """The server's answer ends too early; the message goes on after the server's name."""


class NotHttpError(BrokenError):
    """The server's answer is not HTTP."""


_EARLY = "broke the connection (it ended early)"


class Incoming:
    """An answer as it arrives.

    Args:
        connection: where from; nothing but this answer is expected there.
        method: of the request: the answer to HEAD has no content, whatever its headers say.

    Attributes:
        status: of the answer.
        fields: its headers as they came, names in lower case.
        whole: whether it has arrived to its end.
        lasting: whether the connection can serve another request once the answer is whole.
    """

    def __init__(self, connection: socket.socket, method: str) -> None:
        self.status = 0
        self.fields: list[tuple[str, str]] = []
        self.whole = False
        self.lasting = True
        self._connection = connection
        self._method = method
        self._until_end = False  # content goes on until the connection ends
        self._begun = False  # the head has arrived
        self._blocks: deque[bytes] = deque()
        self._parser = HttpResponseParser(self)

    def read_head(self) -> None:
        """Waits for status and headers; raises BrokenError, NotHttpError, and OSError of the connection."""
        size = 0
        while not self._begun:
            block = self._connection.recv(_BLOCK)
            size += len(block)
            if not block:
                raise BrokenError(_EARLY)
            if size > _LARGEST_HEAD:
                raise NotHttpError(f"answered headers of more than {_LARGEST_HEAD} bytes")
            self._feed(block)

    def read(self, most: int) -> bytes:
        """At most that many bytes of content as soon as there are any, none at the end; raises as `read_head`."""
        while not self._blocks and not self.whole:
            block = self._connection.recv(most)
            if block:
                self._feed(block)
                continue
            if not self._until_end:
                raise BrokenError(_EARLY)
            self.whole, self.lasting = True, False
        if not self._blocks:
            return b""
        block = self._blocks.popleft()
        if len(block) > most:
            self._blocks.appendleft(block[most:])
        return block[:most]

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.lasting = False
            if not self.whole:  # what comes after the answer is nobody's
                raise NotHttpError(f"answered something that is not HTTP/1 ({error})") from error

    # What the parser calls; what these raise it would hide.

    def on_message_begin(self) -> None:
        """Before the first answer, and before any that follows it: after `100 Continue` that is the real one."""
        if self._begun:
            self.lasting = False
        else:
            self.fields.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; those after chunked content are left out."""
        if not self._begun:
            self.fields.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        """The head of an answer, which may be one of those that only announce it."""
        status = self._parser.get_status_code()
        if self._begun or 100 <= status < 200:
            return
        self._begun = True
        self.status = status
        named = dict(self.fields)
        closing = "close" in named.get("connection", "").lower()
        self.lasting = self._parser.get_http_version() == "1.1" and not closing
        self.whole = self._method == "HEAD" or status in {204, 304}
        self._until_end = "content-length" not in named and "chunked" not in named.get("transfer-encoding", "").lower()

    def on_body(self, data: bytes) -> None:
        """Content; after HEAD, or after the end, it is a mistake, and who knows how much more of it there is."""
        if self.whole:
            self.lasting = False
        else:
            self._blocks.append(data)

    def on_message_complete(self) -> None:
        """The end of an answer."""
        self.whole = self.whole or self._begun


def send_request(
    connection: socket.socket,
    method: str,
    target: str,
    headers: Mapping[str, str],
    blocks: Iterable[bytes],
    *,
    chunked: bool,
) -> None:
    """Writes a request.

    Args:
        connection: where to.
        method: of the request.
        target: path and query, encoded.
        headers: all of them.
        blocks: the body.
        chunked: send the body in chunks, which the headers do not say yet.

    Raises ValueError for what would not stay in its line, and OSError of the connection.
    """
    fields = {**headers, "Transfer-Encoding": "chunked"} if chunked else headers
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(mark in line for line in lines for mark in "\r\n\0") or " " in target:
        raise ValueError("a request's line or header has a line end in it")
    waiting = "\r\n".join((*lines, "", "")).encode("latin-1")
    for piece in _framed(blocks) if chunked else blocks:
        if waiting and len(piece) > _BLOCK:
            connection.sendall(waiting)
            waiting = b""
        connection.sendall(waiting + piece if waiting else piece)  # a small body goes with its head
        waiting = b""
    if waiting:
        connection.sendall(waiting)


def _framed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        yield b"%x\r\n%b\r\n" % (len(block), block)
    yield b"0\r\n\r\n"
