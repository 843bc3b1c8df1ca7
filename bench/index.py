"""A package index on loopback with the wheels of the project, as slow as a real one.

The machine's own index may be a mirror in the next room, which says nothing about anybody's download. Here all
connections share one rate.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_BLOCK = 64 << 10
_FOREVER = "max-age=31536000, immutable, public"  # 365 days, as the host of the public index's files says


@dataclass
class SlowIndex:
    """The simple API (PEP 503) for a folder of wheels; `rate` is in bytes per second for all connections together."""

    files: dict[str, Path]
    rate: float
    url: str = ""
    sent: int = 0  # bytes of wheels
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pace(self, count: int) -> None:
        """Waits until `count` more bytes may go out."""
        with self._lock:
            self.sent += count
            now = time.monotonic()
            self._next = max(self._next, now) + count / self.rate
            wait = self._next - now
        time.sleep(wait)

    def page(self, project: str) -> bytes:
        """The links of a project."""
        mine = [(name, path) for name, path in self.files.items() if normal(name.partition("-")[0]) == project]
        links = [f'<a href="../../files/{name}#sha256={path.parent.name}">{name}</a>' for name, path in mine]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def normal(name: str) -> str:
    """A project's name as the simple API writes it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@contextlib.contextmanager
def serve_wheels(wheels: dict[str, Path], rate: float) -> Iterator[SlowIndex]:
    """Serves wheels, by name, from an imgtool cache, whose folders are named by the wheels' sha256."""
    index = SlowIndex(wheels, rate)

    class Handler(_Handler):
        served = index

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: SlowIndex

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        path = self.served.files.get(parts[-1]) if parts[0] == "files" else None
        if path is None:
            body = self.served.page(parts[-1])
            if self._head(len(body), "text/html", hashlib.sha256(body).hexdigest(), "max-age=600, public"):
                self.wfile.write(body)
            return
        if not self._head(path.stat().st_size, "application/octet-stream", path.parent.name, _FOREVER):
            return
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                self.served.pace(len(block))
                self.wfile.write(block)

    def _head(self, length: int, kind: str, tag: str, caching: str) -> bool:
        """Answers with how long the body may be kept; False when the client has it already."""
        unchanged = self.headers.get("If-None-Match") == f'"{tag}"'
        self.send_response(304 if unchanged else 200)
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Cache-Control", caching)
        if not unchanged:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()
        return not unchanged
