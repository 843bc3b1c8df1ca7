"""What the client promises, against a server that answers with the bytes it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.base.http.bytes_server import HANG_UP, OK, Bytes, ask, content
from tests.oci.registry.support import quick_retry
from training_imgtool.base.errors import RegistryRefusedError, TemporaryError
from training_imgtool.base.http.client import Body, Client
from training_imgtool.base.http.retry import PassingError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n8\r\ndefghijk\r\n0\r\n\r\n"
NONE = b"HTTP/1.1 204 No Content\r\n\r\n"


def test_one_connection_serves_request_after_request() -> None:
    with Bytes(OK, CHUNKED, NONE, OK) as server:
        client = server.client()
        assert [content(ask(server, client)) for _ in range(4)] == [b"ok", b"abcdefghijk", b"", b"ok"]
        client.close()
    assert server.connections == 1
    assert b"User-Agent: imgtool/" in server.heads[0]
    assert b"Accept-Encoding: identity\r\n" in server.heads[0]


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with Bytes(b"HTTP/1.1 200 OK\r\n\r\nall of it", hang_up_after=True) as server:
        assert content(ask(server, server.client())) == b"all of it"


def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    with Bytes(OK, OK, hang_up_after=True) as server:
        client = server.client()
        for _ in range(2):
            assert content(ask(server, client)) == b"ok"
            threading.Event().wait(0.05)  # the end of the connection arrives
        client.close()
    assert server.connections == 2


def test_content_that_is_left_costs_the_connection() -> None:
    with Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nsome", OK) as server:
        client = server.client()
        ask(server, client).close()
        assert content(ask(server, client)) == b"ok"
        client.close()
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
        response = ask(server, server.client())
        with pytest.raises(PassingError, match="broke the connection"):
            content(response)
        response.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 1000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 1000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 1000,
    ],
    ids=["head", "heads", "size of a chunk", "content"],
)
def test_a_byte_now_and_then_is_no_answer(answer: bytes) -> None:
    with Bytes(answer, pause=0.01) as server, pytest.raises(PassingError, match="sent nothing for too long"):
        content(ask(server, server.client(idle=0.5)))


def test_a_slow_but_steady_answer_takes_as_long_as_it_needs() -> None:
    body = bytes(20 * 4096)
    with Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body, pause=0.05, piece=4096) as server:
        assert content(ask(server, server.client(idle=0.5))) == body


def test_no_answer() -> None:
    with Bytes(HANG_UP) as server, pytest.raises(PassingError, match="broke the connection"):
        ask(server, server.client())


def test_a_refusal_in_the_middle_of_a_body_is_heard() -> None:
    """A server that has seen enough answers and hangs up, and the rest of the body meets a closed connection."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch"

    def body() -> Iterator[bytes]:
        for _ in range(400):
            yield bytes(1 << 16)

    with Bytes(refusal, hang_up_after=True) as server:
        client = server.client()
        try:
            response = ask(server, client, "PUT", Body(body, 400 << 16))
        except PassingError:
            return  # the reset overtook the answer: then it is tried again
        assert response.status == 413
        response.close()
        client.close()


def test_a_body_of_unknown_length_goes_in_chunks() -> None:
    with Bytes(OK) as server:
        assert content(ask(server, server.client(), "PUT", Body(lambda: iter((b"abc", b"d" * 20)), None))) == b"ok"
        assert b"Transfer-Encoding: chunked\r\n" in server.heads[0]


def test_a_body_that_cannot_be_made_frees_the_connection() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ValueError("no more")

    with Bytes(OK, OK) as server:
        client = server.client(connections=1)
        with pytest.raises(ValueError, match="no more"):
            ask(server, client, "PUT", Body(broken, 9))
        assert content(ask(server, client)) == b"ok"  # the one slot is free again
        client.close()


def test_further_requests_wait_for_a_connection() -> None:
    with Bytes(OK, OK, OK) as server:
        client = server.client(connections=1)
        first = ask(server, client)
        second: list[bytes] = []
        thread = threading.Thread(target=lambda: second.append(content(ask(server, client))), daemon=True)
        thread.start()
        thread.join(0.1)
        assert second == []
        assert content(first) == b"ok"
        thread.join(5)
        assert second == [b"ok"]
        client.close()
    assert server.connections == 1


def test_what_the_server_says_twice() -> None:
    twice = b'WWW-Authenticate: Basic realm="a"\r\nWWW-Authenticate: Bearer realm="b"\r\nX-Y: 1\r\nx-y: 2\r\n'
    with Bytes(b"HTTP/1.1 401 No\r\n" + twice + b"Content-Length: 0\r\n\r\n") as server:
        response = ask(server, server.client())
        answer = response
        assert answer.challenges == ('Basic realm="a"', 'Bearer realm="b"')
        assert answer.headers["x-y"] == "1, 2"
        response.close()


def test_a_url_is_encoded_once() -> None:
    with Bytes(OK) as server:
        client = Client(proxies={}, ca_file=None)
        answer = client.send(
            "PUT", f"{server.origin.url}/a b/ü?_state=x%2By==&z", headers={}, body=Body(lambda: iter(()), 0)
        )
        client.close()
        assert answer.body == b"ok"
        assert server.heads[0].startswith(b"PUT /a%20b/%C3%BC?_state=x%2By==&z HTTP/1.1\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_the_length_of_nothing_is_said(method: str) -> None:
    """Google's front end answers 411 to a POST that does not."""
    with Bytes(OK) as server:
        client = Client(proxies={}, ca_file=None)
        client.send(method, f"{server.origin.url}/x", headers={})
        client.close()
        assert server.heads[0].lower().count(b"content-length: 0\r\n") == 1


def test_what_asks_has_no_length() -> None:
    with Bytes(OK) as server:
        client = Client(proxies={}, ca_file=None)
        client.send("GET", f"{server.origin.url}/x", headers={})
        client.close()
        assert b"content-length" not in server.heads[0].lower()


def test_connections_end_with_the_transport() -> None:
    with Bytes(OK, OK) as server:
        client = server.client()
        late = ask(server, client)
        client.close()
        assert content(late) == b"ok"
        assert content(ask(server, client)) == b"ok"
    assert server.connections == 2


def test_a_registry_that_answered_before_is_coming_back() -> None:
    """Blobs are read and written over connections of their own; what one set learned, the other knows."""
    with Bytes(OK) as server:
        client = server.client()
        assert content(ask(server, client)) == b"ok"
        client.close()
    with pytest.raises(PassingError, match="refuses connections now"):
        client.send("GET", f"{server.origin.url}/x", headers={}, stream=True)
    with pytest.raises(TemporaryError, match="nothing answers"):
        ask(server, server.client())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x0a\n",
        b"HTTP/1.1 200 OK\r\nX: " + 300_000 * b"x",
        100_000 * b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=["two lengths", "SSH", "a TLS alert", "endless header", "endless continue"],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with Bytes(answer, hang_up_after=True) as server, pytest.raises(PassingError):
        content(ask(server, server.client()))


def test_a_port_of_something_else_is_asked_twice_and_named() -> None:
    with Bytes(*[b"SSH-2.0-OpenSSH_9.2\r\n"] * 3) as server:
        client = server.client()

        def insist() -> None:
            for attempt in quick_retry().attempts("x"):
                with attempt:
                    ask(server, client)

        with pytest.raises(RegistryRefusedError, match=f"{server.origin.url} is not a web server") as caught:
            insist()
        assert "name and port" in (caught.value.hint or "")
    assert server.connections == 2


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb"])
def test_a_header_stays_in_its_line(value: str) -> None:
    with Bytes(OK) as server:
        with pytest.raises(ValueError, match="Invalid header value"):
            ask(server, server.client(), X=value)
        assert not [head for head in server.heads if b"Injected" in head]
