"""Connections without a proxy, against a server that answers with the bytes it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.registry.bytes_server import HANG_UP, OK, Bytes, ask, content
from training_imgtool.core.errors import TemporaryError
from training_imgtool.registry.http.addresses import Origin
from training_imgtool.registry.http.plain import PlainWire
from training_imgtool.registry.http.retry import PassingError
from training_imgtool.registry.http.transport import Body, Transport

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n8\r\ndefghijk\r\n0\r\n\r\n"
NONE = b"HTTP/1.1 204 No Content\r\n\r\n"


def test_one_connection_serves_request_after_request() -> None:
    with Bytes(OK, CHUNKED, NONE, OK) as server:
        wire = server.wire()
        assert [content(ask(wire)) for _ in range(4)] == [b"ok", b"abcdefghijk", b"", b"ok"]
        wire.clear()
    assert server.connections == 1
    assert b"User-Agent: test/1\r\n" in server.heads[0]
    assert b"Accept-Encoding: identity\r\n" in server.heads[0]


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with Bytes(b"HTTP/1.1 200 OK\r\n\r\nall of it", hang_up_after=True) as server:
        assert content(ask(server.wire())) == b"all of it"


def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    with Bytes(OK, OK, hang_up_after=True) as server:
        wire = server.wire()
        for _ in range(2):
            assert content(ask(wire)) == b"ok"
            threading.Event().wait(0.05)  # the end of the connection arrives
        wire.clear()
    assert server.connections == 2


def test_content_that_is_left_costs_the_connection() -> None:
    with Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nsome", OK) as server:
        wire = server.wire()
        ask(wire).close()
        assert content(ask(wire)) == b"ok"
        wire.clear()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nshort\r\n",
    ],
    ids=["length", "in a chunk", "between chunks"],
)
def test_content_that_is_cut_is_not_whole(answer: bytes) -> None:
    with Bytes(answer, hang_up_after=True) as server:
        response = ask(server.wire())
        with pytest.raises(PassingError, match="broke the connection"):
            content(response)
        response.close()


@pytest.mark.parametrize("answer", [HANG_UP, b"HTTP/1."], ids=["nothing", "cut"])
def test_no_answer(answer: bytes | None) -> None:
    with Bytes(answer, hang_up_after=True) as server, pytest.raises(PassingError, match="broke the connection"):
        ask(server.wire())


def test_a_refusal_in_the_middle_of_a_body_is_heard() -> None:
    """A server that has seen enough answers and hangs up, and the rest of the body meets a closed connection."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch"

    def body() -> Iterator[bytes]:
        for _ in range(400):
            yield bytes(1 << 16)

    with Bytes(refusal, hang_up_after=True) as server:
        wire = server.wire()
        try:
            response = ask(wire, "PUT", body(), Content_Length=str(400 << 16))
        except PassingError:
            return  # the reset overtook the answer: then it is tried again
        assert response.status == 413
        response.close()
        wire.clear()


def test_a_body_of_unknown_length_goes_in_chunks() -> None:
    with Bytes(OK) as server:
        assert content(ask(server.wire(), "PUT", iter((b"abc", b"d" * 20)))) == b"ok"
        assert b"Transfer-Encoding: chunked\r\n" in server.heads[0]


def test_a_body_that_cannot_be_made_frees_the_connection() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ValueError("no more")

    with Bytes(OK, OK) as server:
        wire = server.wire(connections=1)
        with pytest.raises(ValueError, match="no more"):
            ask(wire, "PUT", broken(), Content_Length="9")
        assert content(ask(wire)) == b"ok"  # the one slot is free again
        wire.clear()


def test_further_requests_wait_for_a_connection() -> None:
    with Bytes(OK, OK, OK) as server:
        wire = server.wire(connections=1)
        first = ask(wire)
        second: list[bytes] = []
        thread = threading.Thread(target=lambda: second.append(content(ask(wire))), daemon=True)
        thread.start()
        thread.join(0.1)
        assert second == []
        assert content(first) == b"ok"
        thread.join(5)
        assert second == [b"ok"]
        wire.clear()
    assert server.connections == 1


def test_what_the_server_says_twice() -> None:
    twice = b'WWW-Authenticate: Basic realm="a"\r\nWWW-Authenticate: Bearer realm="b"\r\nX-Y: 1\r\nx-y: 2\r\n'
    with Bytes(b"HTTP/1.1 401 No\r\n" + twice + b"Content-Length: 0\r\n\r\n") as server:
        response = ask(server.wire())
        assert response.challenges == ('Basic realm="a"', 'Bearer realm="b"')
        assert response.headers["x-y"] == "1, 2"
        response.close()


def test_a_url_is_encoded_once() -> None:
    with Bytes(OK) as server:
        transport = Transport(proxies={}, ca_file=None)
        answer = transport.send(
            "PUT", f"{server.origin.url}/a b/ü?_state=x%2By==&z", headers={}, body=Body(lambda: iter(()), 0)
        )
        transport.close()
        assert answer.body == b"ok"
        assert server.heads[0].startswith(b"PUT /a%20b/%C3%BC?_state=x%2By==&z HTTP/1.1\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_the_length_of_nothing_is_said(method: str) -> None:
    """Google's front end answers 411 to a POST that does not."""
    with Bytes(OK) as server:
        transport = Transport(proxies={}, ca_file=None)
        transport.send(method, f"{server.origin.url}/x", headers={})
        transport.close()
        assert server.heads[0].lower().count(b"content-length: 0\r\n") == 1


def test_what_asks_has_no_length() -> None:
    with Bytes(OK) as server:
        transport = Transport(proxies={}, ca_file=None)
        transport.send("GET", f"{server.origin.url}/x", headers={})
        transport.close()
        assert b"content-length" not in server.heads[0].lower()


def test_connections_end_with_the_transport() -> None:
    with Bytes(OK, OK) as server:
        wire = server.wire()
        late = ask(wire)
        wire.clear()
        assert content(late) == b"ok"
        assert content(ask(wire)) == b"ok"
    assert server.connections == 2


def test_a_registry_that_answered_before_is_coming_back() -> None:
    """Blobs are read and written over wires of their own; what one learned, the other knows."""
    answered: set[Origin] = set()
    with Bytes(OK) as server:
        wires = [
            PlainWire(server.origin, ca_file=None, connections=1, user_agent="test/1", answered=answered)
            for _ in range(2)
        ]
        assert content(ask(wires[0])) == b"ok"
        wires[0].clear()
    with pytest.raises(PassingError, match="refuses connections now"):
        ask(wires[1])
    with pytest.raises(TemporaryError, match="nothing answers"):
        ask(PlainWire(server.origin, ca_file=None, connections=1, user_agent="test/1", answered=set()))


@pytest.mark.parametrize(
    ("host", "port", "named"),
    [("registry.test", 80, "registry.test"), ("registry.test", 5000, "registry.test:5000"), ("::1", 80, "[::1]")],
)
def test_the_host_that_is_asked(host: str, port: int, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bytes(OK) as server:
        connection = socket.create_connection((server.origin.host, server.origin.port))
        monkeypatch.setattr("training_imgtool.registry.http.plain.socket.create_connection", lambda *_: connection)
        wire = PlainWire(Origin("http", host, port), ca_file=None, connections=1, user_agent="test/1", answered=set())
        assert content(ask(wire)) == b"ok"
        wire.clear()
        assert f"\r\nHost: {named}\r\n".encode() in server.heads[0]
