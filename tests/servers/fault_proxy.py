"""A reverse proxy in front of a registry that counts everything and breaks what it is told to.

It speaks HTTP/1.1 on both sides, passes the Host header on (so that Location stays on the proxy), keeps
connections open, streams bodies, and works in threads. For tests and for benchmarks:

    with FaultProxy("127.0.0.1:5000") as proxy:
        proxy.add(Fault(at=3, action=Action.CUT_AFTER))     # the third request's answer is lost
        ...
        assert [exchange.method for exchange in proxy.log] == ["HEAD", "POST", "PUT", "HEAD"]
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.running import Running

_BLOCK = 262144
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"})


class Action(StrEnum):
    """What a fault does to its request."""

    CUT_BEFORE = "cut before"  # reset before the upstream sees the request
    CUT_BODY = "cut body"  # reset after `after` bytes of the request's body; the upstream sees no more either
    CUT_AFTER = "cut after"  # the upstream acts, its answer is lost
    CUT_ANSWER = "cut answer"  # reset after `after` bytes of the answer's body
    ANSWER = "answer"  # an answer of the proxy's own, the upstream sees nothing
    DELAY = "delay"  # wait `seconds`, or until the proxy ends, then pass on
    CHANGE = "change"  # pass on, then `change` edits the answer


@dataclass(kw_only=True)
class Fault:
    """One thing to break.

    Attributes:
        action: what happens.
        at: the request's number, from 1, counted over all requests; or None.
        method: only requests of this method, or None.
        path: only requests whose target has this in it.
        times: how often it happens; -1 for ever.
        status, headers, body: the answer, for ANSWER.
        after: bytes, for the CUT actions within bodies.
        seconds: for DELAY.
        change: for CHANGE, takes and returns (status, headers, body); headers have lower-case names.
    """

    action: Action
    at: int | None = None
    method: str | None = None
    path: str = ""
    times: int = 1
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int = 0
    seconds: float = 0.0
    change: Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]] | None = None

    def hits(self, number: int, method: str, target: str) -> bool:
        """Whether this is the request to break."""
        right = (self.at is None or self.at == number) and (self.method is None or self.method == method)
        return right and self.times != 0 and self.path in target


@dataclass
class Exchange:
    """One request as the proxy saw it. `status` 0 means that the client got no answer from us."""

    number: int
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    status: int = 0
    upstream_status: int = 0
    received: int = 0  # bytes of the request's body
    received_sha256: str = ""
    sent: int = 0  # bytes of the answer's body
    answer_headers: dict[str, str] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0

    @property
    def line(self) -> str:
        """`METHOD PATH STATUS`, for comparing."""
        return f"{self.method} {self.path} {self.status}"


class _CutError(Exception):
    """The connection to the client is to be reset."""


class FaultProxy(Running):
    """See the module. `delay` is waited before each request, as a round trip would be (seconds).

    Args:
        upstream: HOST:PORT of the registry.
        delay: seconds before each request is passed on.
        rate: bytes per second in each direction and connection, or None.
        serial: lets one request at a time through.
    """

    def __init__(self, upstream: str, *, delay: float = 0.0, rate: float | None = None, serial: bool = False) -> None:
        self.upstream = upstream
        self.delay = delay
        self.rate = rate
        self.turn = threading.Lock() if serial else contextlib.nullcontext()
        self.log: list[Exchange] = []
        self._busy = 0
        self._faults: list[Fault] = []
        self.lock = threading.Lock()
        self.ending = threading.Event()
        server = _Server(("127.0.0.1", 0), _Handler)
        server.proxy = self
        super().__init__(server)

    def add(self, *faults: Fault) -> None:
        """Plans faults; of several that hit, the first is used up."""
        with self.lock:
            self._faults += faults

    def clear(self) -> None:
        """Forgets the log and the faults, and counts requests from 1 again."""
        with self.lock:
            self.log, self._faults = [], []

    def methods(self) -> list[str]:
        """The methods of all requests, in order."""
        return [exchange.method for exchange in self.log]

    def bytes_up(self) -> int:
        """Bytes of all request bodies."""
        return sum(exchange.received for exchange in self.log)

    def bytes_down(self) -> int:
        """Bytes of all answers' bodies."""
        return sum(exchange.sent for exchange in self.log)

    def begin(self, exchange: Exchange, target: str) -> Fault | None:
        """Writes a request down and takes its fault."""
        with self.lock:
            exchange.number = len(self.log) + 1
            self.log.append(exchange)
            self._busy += 1
            for fault in self._faults:
                if fault.hits(exchange.number, exchange.method, target):
                    fault.times -= 1
                    return fault
        return None

    def end(self, exchange: Exchange) -> None:
        """Writes down that a request is over."""
        with self.lock:
            self._busy -= 1
            exchange.ended = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        super().__exit__()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    proxy: FaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # what is no HTTP gets an answer that is: containerd then tries without TLS
    wbufsize = 65536
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """The log is the proxy's own."""

    def _any(self) -> None:
        proxy = self.server.proxy
        parts = urlsplit(self.path)
        exchange = Exchange(
            0,
            self.command,
            parts.path,
            parse_qs(parts.query, keep_blank_values=True),
            {name.lower(): value for name, value in self.headers.items()},
            began=time.monotonic(),
        )
        fault = proxy.begin(exchange, self.path)
        try:
            if proxy.delay:
                time.sleep(proxy.delay)
            with self.server.proxy.turn:
                self._exchange(exchange, fault)
        except _CutError:
            self._reset()
        except (OSError, http.client.HTTPException):
            self.close_connection = True
        finally:
            proxy.end(exchange)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 the names http.server calls

    def _exchange(self, exchange: Exchange, fault: Fault | None) -> None:
        action = fault.action if fault else None
        if action is Action.CUT_BEFORE:
            raise _CutError
        if self.command in {"POST", "PUT", "PATCH"} and not {"content-length", "transfer-encoding"} & set(
            exchange.headers
        ):
            self._answer(exchange, 411, {}, b"POST requests require a Content-length header")  # as Google's front end
            return
        if fault and action is Action.ANSWER:
            self._drain(exchange)
            self._answer(exchange, fault.status, dict(fault.headers), fault.body)
            return
        if fault and action is Action.DELAY:
            self.server.proxy.ending.wait(fault.seconds)
        response = self._pass_on(exchange, fault.after if fault and action is Action.CUT_BODY else None)
        exchange.upstream_status = response.status
        headers = {name.lower(): value for name, value in response.getheaders() if name.lower() not in _HOP}
        if action is Action.CUT_AFTER:
            response.read()
            raise _CutError
        if fault and action is Action.CHANGE and fault.change:
            self._answer(exchange, *fault.change(response.status, headers, response.read()))
            return
        self._relay(exchange, response, headers, fault.after if fault and action is Action.CUT_ANSWER else None)

    def _pass_on(self, exchange: Exchange, cut: int | None) -> http.client.HTTPResponse:
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(self.server.proxy.upstream, timeout=120, blocksize=_BLOCK)
            self._upstream.connect()
            self._upstream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream = self._upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        chunked = "chunked" in self.headers.get("transfer-encoding", "")
        for name, value in self.headers.items():
            if name.lower() not in _HOP:
                upstream.putheader(name, value)
        if chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        blocks = self._body(exchange)
        try:
            for block in blocks:
                if cut is not None and exchange.received > cut:
                    upstream.close()
                    raise _CutError
                upstream.send(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
            if chunked:
                upstream.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):  # it answered without reading to the end
            for _ in blocks:
                pass
        return upstream.getresponse()

    def _body(self, exchange: Exchange) -> Iterator[bytes]:
        checked = hashlib.sha256()
        blocks = self._chunks() if "chunked" in self.headers.get("transfer-encoding", "") else self._sized()
        for block in blocks:
            exchange.received += len(block)
            checked.update(block)
            exchange.received_sha256 = checked.hexdigest()
            self._pace(len(block))
            yield block

    def _sized(self) -> Iterator[bytes]:
        left = int(self.headers.get("content-length", 0))
        while left:
            block = self.rfile.read1(min(left, _BLOCK))
            if not block:
                raise ConnectionError
            left -= len(block)
            yield block

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _drain(self, exchange: Exchange) -> None:
        for _ in self._body(exchange):
            pass

    def _relay(
        self, exchange: Exchange, response: http.client.HTTPResponse, headers: dict[str, str], cut: int | None
    ) -> None:
        body_less = self.command == "HEAD" or response.status in {204, 304}
        if not body_less and "content-length" not in headers:
            self._answer(exchange, response.status, headers, response.read())
            return
        self._head(exchange, response.status, headers)
        if body_less:
            response.read()
            self.wfile.flush()
            return
        while block := response.read1(_BLOCK):
            if cut is not None and exchange.sent + len(block) > cut:
                self.wfile.write(block[: cut - exchange.sent])
                self.wfile.flush()
                raise _CutError
            self._pace(len(block))
            exchange.sent += len(block)
            self.wfile.write(block)
        response.read()
        self.wfile.flush()

    def _answer(self, exchange: Exchange, status: int, headers: dict[str, str], body: bytes) -> None:
        headers = {name.lower(): value for name, value in headers.items()}
        if self.command != "HEAD":
            headers["content-length"] = str(len(body))
        self._head(exchange, status, headers)
        if self.command != "HEAD":
            self.wfile.write(body)
            exchange.sent += len(body)
        self.wfile.flush()

    def _head(self, exchange: Exchange, status: int, headers: dict[str, str]) -> None:
        exchange.status = status
        exchange.answer_headers = headers
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _pace(self, count: int) -> None:
        if self.server.proxy.rate:
            time.sleep(count / self.server.proxy.rate)

    def _reset(self) -> None:
        """Closes the client's connection with a TCP reset."""
        self.close_connection = True
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
        with contextlib.suppress(OSError):
            self.connection.close()
