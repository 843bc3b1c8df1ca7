"""What a server may answer and what it may not, byte by byte."""

from __future__ import annotations

import pytest

from tests.registry.bytes_server import OK, Bytes, ask, content
from tests.registry.support import quick_retry
from training_imgtool.core.errors import RegistryRefusedError
from training_imgtool.registry.http.retry import PassingError


@pytest.mark.parametrize(
    "before",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nLocation: /wrong\r\n\r\n"],
    ids=["continue", "hints"],
)
def test_an_answer_that_only_announces_the_answer(before: bytes) -> None:
    with Bytes(before + OK, OK) as server:
        wire = server.wire()
        response = ask(wire)
        assert (response.status, dict(response.headers)) == (200, {"content-length": "2"})
        assert [content(response), content(ask(wire))] == [b"ok", b"ok"]
        wire.clear()
    assert server.connections == 1


def test_an_answer_to_head_has_no_content_whatever_it_says() -> None:
    with Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", b"HTTP/1.1 404 No\r\n\r\n", OK) as server:
        wire = server.wire()
        assert [content(ask(wire, "HEAD")) for _ in range(2)] == [b"", b""]
        assert content(ask(wire)) == b"ok"
        wire.clear()
    assert server.connections == 1


def test_a_server_that_sends_content_after_head_is_not_asked_again_there() -> None:
    with Bytes(OK, OK) as server:
        wire = server.wire()
        assert content(ask(wire, "HEAD")) == b""
        assert content(ask(wire)) == b"ok"
        wire.clear()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        OK + b"nonsense",
    ],
    ids=["close", "old", "an answer to nothing", "nonsense after it"],
)
def test_a_connection_that_cannot_be_used_again(answer: bytes) -> None:
    with Bytes(answer, OK) as server:
        wire = server.wire()
        assert [content(ask(wire)), content(ask(wire))] == [b"ok", b"ok"]
        wire.clear()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x0a",
        b"HTTP/1.1 200 OK\r\nX: " + 300_000 * b"x",
        100_000 * b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=[
        "two lengths",
        "two other lengths",
        "no number",
        "another protocol",
        "SSH",
        "a TLS alert",
        "endless header",
        "endless continue",
    ],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with (
        Bytes(answer) as server,
        pytest.raises(PassingError, match=r"answered (something that is not HTTP|headers of more)"),
    ):
        content(ask(server.wire()))


def test_a_port_of_something_else_is_asked_twice_and_named() -> None:
    with Bytes(*[b"SSH-2.0-OpenSSH_9.2\r\n"] * 3) as server:
        wire = server.wire()
        with pytest.raises(RegistryRefusedError, match=f"{server.origin.url} is no registry") as caught:
            quick_retry().run(lambda _: ask(wire), who="x", notice=lambda _: None)
        assert "name and port" in (caught.value.hint or "")
    assert server.connections == 2


def test_what_follows_chunks_is_no_header() -> None:
    trailer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nLocation: /wrong\r\n\r\n"
    with Bytes(trailer, OK) as server:
        wire = server.wire()
        response = ask(wire)
        assert content(response) == b"ok"
        assert "location" not in response.headers
        assert content(ask(wire)) == b"ok"
        wire.clear()
    assert server.connections == 1


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\0b"])
def test_a_header_stays_in_its_line(value: str) -> None:
    with Bytes(OK) as server:
        with pytest.raises(ValueError, match="line end"):
            ask(server.wire(), X=value)
        assert not [head for head in server.heads if b"Injected" in head]


def test_a_small_body_goes_with_its_head() -> None:
    with Bytes(OK) as server:
        response = ask(server.wire(), "PUT", iter((b"body",)), Content_Length="4")
        assert content(response) == b"ok"
        assert server.heads[0].endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX: \xe4\r\nContent-Length:  2 \r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX:\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["no reason", "other letters, spaces", "empty header", "chunk extension", "empty line first"],
)
def test_what_is_odd_and_allowed(answer: bytes) -> None:
    with Bytes(answer) as server:
        response = ask(server.wire())
        assert (response.status, content(response)) == (200, b"ok")
