"""Connections that fail, or that need another way: TLS on loopback, proxies, names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.base.http.bytes_server import Bytes
from tests.oci.registry.support import Clock, clients, machine
from tests.servers.certificates import make_certificate
from tests.servers.scripted import Reply, ScriptedServer
from training_imgtool.base.errors import CredentialsError, ImgtoolError, RegistryRefusedError, TemporaryError
from training_imgtool.base.http.client import Client
from training_imgtool.base.http.retry import PassingError
from training_imgtool.base.reference import parse_reference

DIGEST = f"sha256:{'1' * 64}"
FOUND = Reply(200, b"", {"Docker-Content-Digest": DIGEST})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def hanging_up(certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    """A registry with TLS that hangs up on plain HTTP, as Python's and many others do; Go's and nginx say so."""
    with ScriptedServer([FOUND], tls=certificate) as server:
        yield server


def test_tls_on_loopback_is_found_when_the_server_hangs_up(
    hanging_up: ScriptedServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    clock = Clock()
    ref = parse_reference(f"{hanging_up.host}/a/b:c")
    with clients(machine(tmp_path, IMGTOOL_CA_FILE=str(certificate[0])), clock) as registries:
        assert [registries.at(ref.repository).head(ref) for _ in range(2)] == [DIGEST, DIGEST]
    assert clock.slept == []
    assert [asked.method for asked in hanging_up.asked] == ["GET", "HEAD", "HEAD"]


def test_tls_on_loopback_is_found_by_threads_side_by_side(
    hanging_up: ScriptedServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    clock = Clock()
    ref = parse_reference(f"{hanging_up.host}/a/b:c")
    settings = machine(tmp_path, IMGTOOL_CA_FILE=str(certificate[0]))
    with clients(settings, clock) as registries, ThreadPoolExecutor(6) as pool:
        registry = registries.at(ref.repository)
        assert list(pool.map(lambda _: registry.head(ref), range(6))) == [DIGEST] * 6
    assert clock.slept == []


def test_tls_on_loopback_with_a_certificate_of_nobody(hanging_up: ScriptedServer, tmp_path: Path) -> None:
    ref = parse_reference(f"{hanging_up.host}/a/b:c")
    with clients(machine(tmp_path)) as registries, pytest.raises(RegistryRefusedError, match="not trusted") as caught:
        registries.at(ref.repository).head(ref)
    assert "IMGTOOL_CA_FILE" in (caught.value.hint or "")


def test_a_listed_host_is_never_spoken_to_with_tls(hanging_up: ScriptedServer, tmp_path: Path) -> None:
    ref = parse_reference(f"{hanging_up.host}/a/b:c")
    settings = machine(tmp_path, IMGTOOL_INSECURE_REGISTRIES=hanging_up.host)
    with clients(settings) as registries, pytest.raises(TemporaryError, match="broke the connection"):
        registries.at(ref.repository).head(ref)
    assert hanging_up.asked == []


@pytest.mark.parametrize(
    ("tls", "status", "kind"),
    [(True, 407, CredentialsError), (False, 407, CredentialsError), (True, 403, RegistryRefusedError)],
)
def test_a_proxy_that_refuses(tls: bool, status: int, kind: type[ImgtoolError], tmp_path: Path) -> None:
    clock = Clock()

    def refuse(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: refuse(listener.accept()[0]), daemon=True)
        thread.start()
        proxy = f"127.0.0.1:{listener.getsockname()[1]}"
        plain = {} if tls else {"IMGTOOL_INSECURE_REGISTRIES": "registry.example"}
        settings = machine(tmp_path, HTTP_PROXY=f"http://{proxy}", HTTPS_PROXY=f"http://{proxy}", **plain)
        ref = parse_reference("registry.example/a/b:c")
        with (
            clients(settings, clock) as registries,
            pytest.raises(kind, match=f"proxy {proxy} .*HTTP {status}") as caught,
        ):
            registries.at(ref.repository).head(ref)
    assert "HTTPS_PROXY" in (getattr(caught.value, "hint", "") or "")
    assert clock.slept == []


@pytest.mark.parametrize(("error", "tries"), [(socket.EAI_AGAIN, 4), (socket.EAI_NONAME, 1)])
def test_a_name_server_that_fails_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: int, tries: int
) -> None:
    asked = []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        raise socket.gaierror(error, "no")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    ref = parse_reference("registry.example/a/b:c")
    with clients(machine(tmp_path)) as registries, pytest.raises(TemporaryError, match="cannot be found"):
        registries.at(ref.repository).head(ref)
    assert len(asked) == tries


def test_an_answer_in_memory_has_a_time_limit() -> None:
    clock = iter(range(0, 1000, 50))
    with Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as server:
        client = Client(proxies={}, ca_file=None, answer_seconds=10, clock=lambda: float(next(clock)))
        with pytest.raises(PassingError, match="took longer than 10 s"):
            client.send("GET", f"{server.origin.url}/x", headers={})
        assert not server.heads[1:]
        client.close()
