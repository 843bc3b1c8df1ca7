"""An HTTP server that answers from a list or a function, and keeps what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.servers.running import Running


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]  # lower-case names
    body: bytes


@dataclass(frozen=True)
class Reply:
    """One answer. `length` overrides Content-Length, to lie about it."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


Script = Callable[[Asked], Reply]


class ScriptedServer(Running):
    """Answers each request with what `script` says; a list is answered in order, its last entry for ever."""

    def __init__(
        self, script: Script | list[Reply], *, tls: tuple[Path, Path] | None = None, clients: Path | None = None
    ) -> None:
        self._script = script
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        server = _Server(("127.0.0.1", 0), _Handler)
        server.scripted = self
        super().__init__(server)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            if clients:
                context.load_verify_locations(clients)
                context.verify_mode = ssl.CERT_REQUIRED
                context.maximum_version = ssl.TLSVersion.TLSv1_2  # which refuses in the handshake
            server.socket = context.wrap_socket(server.socket, server_side=True)

    def reply(self, asked: Asked) -> Reply:
        """The answer to a request, which is kept."""
        with self._lock:
            self.asked.append(asked)
            if isinstance(self._script, list):
                return self._script[min(len(self.asked), len(self._script)) - 1]
        return self._script(asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    scripted: ScriptedServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses our certificate is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Requests are kept in `asked`."""

    def _any(self) -> None:
        chunked = self.headers.get("transfer-encoding") == "chunked"
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.scripted.reply(Asked(self.command, self.path, headers, body))
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if not (self.command == "HEAD" and any(name.lower() == "content-length" for name in reply.headers)):
            self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        if reply.length is not None and reply.length != len(reply.body):
            self.close_connection = True

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 the names http.server calls
