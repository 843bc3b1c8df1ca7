"""A package index on loopback: the simple API as JSON or HTML, files with Range, and faults on demand."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers.running import running


def tiny_wheel(
    name: str, version: str, *, requires: tuple[str, ...] = (), padding: int = 0, module: str = "", python: str = ""
) -> bytes:
    """A valid wheel of a package with one module."""
    info = f"{name}-{version}.dist-info"
    metadata = "".join(
        [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {r}\n" for r in requires)]
        + ([f"Requires-Python: {python}\n"] if python else [])
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{module or name}.py"), "#" * padding + "\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/METADATA"), metadata)
        archive.writestr(zipfile.ZipInfo(f"{info}/WHEEL"), "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "")
    return stream.getvalue()


@dataclass
class SimpleIndex:
    """What the server has and how it behaves. `url` is the index, without credentials."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)  # project -> file name -> bytes
    as_json: bool = True
    with_hashes: bool = True
    login: tuple[str, str] | None = None
    ranges: bool = True
    cut_after: int | None = None  # the next file answer ends after so many bytes
    faults: list[int] = field(default_factory=list)  # statuses of the next answers
    served: dict[str, bytes] = field(default_factory=dict)  # other bytes than listed, by file name
    metadata: dict[str, bytes] = field(default_factory=dict)  # what it says of a file's METADATA (PEP 658)
    yanked: dict[str, str] = field(default_factory=dict)  # why files are withdrawn, by name (PEP 592)
    redirect: bool = False
    moved_to: str = ""  # where redirects lead, instead of to the file
    endless: bool = False  # file answers never end
    dripping: float = 0.0  # seconds between the bytes of a page
    seconds: float = 0.0  # waited before each answer, or until the server ends
    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    ranges_asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)

    def add(self, project: str, file: str, data: bytes) -> str:
        """Adds a file; returns its sha256."""
        self.files.setdefault(project, {})[file] = data
        return hashlib.sha256(data).hexdigest()

    def with_login(self) -> str:
        """The index's URL with its user and password."""
        assert self.login is not None
        return self.url.replace("://", f"://{self.login[0]}:{self.login[1]}@")


@contextmanager
def serving(index: SimpleIndex) -> Iterator[SimpleIndex]:
    """Serves `index` on a free port of 127.0.0.1."""

    class Handler(_Handler):
        served = index

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as host:
        index.url = f"http://{host}/simple"
        try:
            yield index
        finally:
            index.ending.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: SimpleIndex

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        index = self.served
        with index.lock:
            index.requests[f"{self.command} {self.path}"] += 1
            index.agents[self.headers.get("User-Agent", "").partition("/")[0]] += 1
            fault = index.faults.pop(0) if index.faults else None
        index.ending.wait(index.seconds)
        if fault is not None:
            self._answer(fault, b"", {})
            return
        if index.login is not None:
            expected = "Basic " + base64.b64encode(":".join(index.login).encode()).decode()
            if self.headers.get("Authorization") != expected:
                self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="index"'})
                return
        parts = self.path.strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2 and parts[1] in index.files:
            self._page(parts[1])
        elif parts[0] == "files" and len(parts) == 3 and parts[2] in index.files.get(parts[1], {}):
            self._file(parts[1], parts[2])
        elif parts[0] == "files" and parts[-1].removesuffix(".metadata") in index.metadata:
            self._answer(200, index.metadata[parts[-1].removesuffix(".metadata")], {})
        elif parts[0] == "moved":
            self._answer(302, b"", {"Location": index.moved_to or self.path.replace("/moved/", "/files/")})
        else:
            self._answer(404, b"no such thing", {})

    def _page(self, project: str) -> None:
        index = self.served
        folder = "moved" if index.redirect else "files"
        rows: list[tuple[str, str, str]] = []
        for file, data in index.files[project].items():
            digest = hashlib.sha256(data).hexdigest() if index.with_hashes else ""
            rows.append((file, f"../../{folder}/{project}/{file}", digest))
        if index.as_json:
            listed = [
                {
                    "filename": file,
                    "url": url,
                    "hashes": {"sha256": digest} if digest else {},
                    "core-metadata": file in index.metadata,
                    **({"yanked": index.yanked[file]} if file in index.yanked else {}),
                }
                for file, url, digest in rows
            ]
            body = json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": listed}).encode()
            self._answer(200, body, {"Content-Type": "application/vnd.pypi.simple.v1+json"})
            return
        anchors = [f'<a href="{url}{f"#sha256={digest}" if digest else ""}">{file}</a>' for file, url, digest in rows]
        self._answer(200, f"<!DOCTYPE html>{''.join(anchors)}".encode(), {"Content-Type": "text/html"})

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            while not self.served.ending.is_set():
                self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        self.close_connection = True

    def _file(self, project: str, file: str) -> None:
        index = self.served
        if index.endless and self.command == "GET":
            self._endless()
            return
        data = index.served.get(file, index.files[project][file])
        start, status, headers = 0, 200, {}
        asked = self.headers.get("Range")
        if asked:
            index.ranges_asked.append(asked)
            if index.ranges:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, end = int(first), int(last) + 1 if last else len(data)
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
                data, status = data[start:end], 206
        with index.lock:
            cut, index.cut_after = (index.cut_after, None) if self.command == "GET" else (None, index.cut_after)
        self._answer(status, data, headers, cut=cut)

    def _answer(self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and self.served.dripping:
            with suppress(OSError):
                for byte in body:
                    self.wfile.write(bytes((byte,)))
                    self.served.ending.wait(self.served.dripping)
        elif self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
