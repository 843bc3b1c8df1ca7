"""Engines that do not answer, answer nonsense, or answer badly: each is said within the time it may take."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.make.engines.support import free_port, settings
from training_imgtool.base.errors import EngineUnavailableError, InputError
from training_imgtool.base.progress import silent
from training_imgtool.base.reference import parse_repository
from training_imgtool.make.engines.docker.connect import connect
from training_imgtool.make.engines.docker.containers import Containers
from training_imgtool.make.engines.docker.context import Endpoint

BASE = parse_repository("b.example/x").digest(f"sha256:{'a' * 64}")
MISSING = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n"
    b'{"message": "No such image"}'
)
PING = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK"


@contextmanager
def answering(folder: Path, *answers: bytes, hold: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """A socket that gives the n-th request the n-th answer, then the last one; yields DOCKER_HOST and the requests."""
    path = folder / "d.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    requests: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(2)
                request = connection.recv(1 << 16)
                if not request:
                    continue  # somebody only looked whether we listen
                requests.append(request)
                connection.sendall(answers[min(len(requests), len(answers)) - 1])
                time.sleep(hold)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"unix://{path}", requests
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def chunked(*events: object, end: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(data), data) for data in (json.dumps(e).encode() for e in events))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + (b"0\r\n\r\n" if end else b"")


def inspected(**fields: object) -> bytes:
    body = json.dumps({"Id": f"sha256:{'a' * 64}", "Os": "linux", "Architecture": "amd64", **fields}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("kind", ["missing", "refused", "file", "tcp"])
def test_nobody_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d.sock"
    host = f"unix://{path}"
    expected = "No such file or directory" if kind == "missing" else "Connection refused"
    if kind == "refused":
        with closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(str(path))
    elif kind == "file":
        path.write_text("")
    elif kind == "tcp":
        host = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(EngineUnavailableError) as caught:
        connect(settings(tmp_path, DOCKER_HOST=host))
    assert caught.value.message == f"Docker Engine not reachable at {host} (from DOCKER_HOST): {expected}"
    assert "start it" in str(caught.value.hint)


def test_not_allowed(tmp_path: Path) -> None:
    """In a process of another user where the tests run as root, who is allowed everything."""
    with answering(tmp_path, PING) as (host, _):
        (tmp_path / "d.sock").chmod(stat.S_IRUSR)
        tmp_path.chmod(0o755)
        pid = os.fork()
        if pid == 0:
            code = 1
            with suppress(BaseException):
                if os.geteuid() == 0:
                    os.setuid(65534)
                try:
                    connect(settings(tmp_path, DOCKER_HOST=host))
                except EngineUnavailableError as error:
                    code = 0 if "Permission denied" in error.message and "group `docker`" in str(error.hint) else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "not as a Docker Engine"),
        (b"HTTP/1.1 200 OK\r\nApi-Version: newest\r\nContent-Length: 2\r\n\r\nOK", "not as a Docker Engine"),
        (
            b"HTTP/1.1 200 OK\r\nApi-Version: 1.24\r\nContent-Length: 2\r\n\r\nOK",
            "speaks API 1.24; imgtool needs 1.32 ",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno", "502"),
        (b"SSH-2.0-OpenSSH\r\n", "not reachable"),
        (b"", "not reachable"),
    ],
)
def test_not_an_engine(tmp_path: Path, answer: bytes, message: str) -> None:
    with (
        answering(tmp_path, answer) as (host, _),
        pytest.raises(EngineUnavailableError, match=message),
    ):
        connect(settings(tmp_path, DOCKER_HOST=host))


def test_an_engine_that_hangs(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        answering(tmp_path, b"HTTP/1.1 200", hold=1.5) as (host, _),
        pytest.raises(EngineUnavailableError, match="no answer in time"),
    ):
        connect(settings(tmp_path, DOCKER_HOST=host), timeout=0.5)
    assert time.monotonic() - began < 10


def test_a_newer_engine_is_spoken_to_in_a_version_that_is_known(tmp_path: Path) -> None:
    with answering(tmp_path, PING.replace(b"1.41", b"1.99"), inspected()) as (host, requests):
        connect(settings(tmp_path, DOCKER_HOST=host)).image_id("0" * 64)
    version = requests[1].split(b"/v", 1)[1].split(b"/", 1)[0]
    assert (1, 41) <= tuple(int(part) for part in version.split(b".")) < (1, 99)


def test_a_pull_whose_answer_is_nonsense(tmp_path: Path) -> None:
    nonsense = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<html\r\n0\r\n\r\n"
    for number, answer in enumerate((nonsense, chunked(["a list"]), chunked({"status": "Pulling"}, end=False))):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            answering(folder, PING, MISSING, answer) as (host, _),
            closing(connect(settings(tmp_path, DOCKER_HOST=host))) as engine,
            pytest.raises(EngineUnavailableError),
        ):
            engine.pull_base(BASE, "linux/amd64", None, silent)


def test_a_full_disk_is_the_engines_fault(tmp_path: Path) -> None:
    body = b'{"message": "write /var/lib/docker/tmp/x: no space left on device"}'
    answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    with (
        answering(tmp_path, PING, MISSING, answer % (len(body), body)) as (host, _),
        closing(connect(settings(tmp_path, DOCKER_HOST=host))) as engine,
        pytest.raises(EngineUnavailableError, match="no space left on device") as caught,
    ):
        engine.pull_base(BASE, "linux/amd64", None, silent)
    assert "docker system df" in str(caught.value.hint)


def test_what_an_image_starts_and_a_mistake_that_is_not_the_engines(tmp_path: Path) -> None:
    answers = PING, inspected(Config={"Entrypoint": ["python"], "Cmd": ["-V"]})
    with answering(tmp_path, *answers) as (host, _), closing(connect(settings(tmp_path, DOCKER_HOST=host))) as engine:
        assert Containers(engine.api).words("x") == (("python",), ("-V",))
        stream = engine.api.stream(lambda _: (), where=lambda: "x", refused=lambda words, _: InputError(words))
        with pytest.raises(KeyError), stream:
            raise KeyError


def test_no_login_of_the_user_is_read_or_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left alone, docker-py runs the helper of a registry, and fails at an auth without a colon."""
    ran = tmp_path / "ran"
    helper = tmp_path / "docker-credential-canary"
    helper.write_text(f"#!/bin/sh\ntouch {ran}\n")
    helper.chmod(0o755)
    logins = {"a.example": {"auth": "bm9jb2xvbg=="}, "b.example": {"auth": "am86Y2FuYXJ5"}}
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(
        json.dumps({"auths": logins, "credsStore": "canary", "credHelpers": {"c.example": "canary"}})
    )
    (tmp_path / ".netrc").write_text("machine localhost login jo password canary\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with (
        answering(tmp_path, PING, MISSING, chunked(), inspected()) as (host, requests),
        closing(connect(settings(tmp_path, DOCKER_HOST=host))) as engine,
    ):
        engine.pull_base(BASE, "linux/amd64", None, silent)
    assert len(requests) == 4
    assert not [request for request in requests if b"x-registry-config" in request.lower()]
    assert not [request for request in requests if b"\r\nauthorization:" in request.lower()]
    assert b"X-Registry-Auth: e30=" in requests[2]  # {}
    assert not ran.exists()


def make_certificates(folder: Path) -> None:
    """ca.pem, and a certificate of it for localhost that serves as the server's and the client's."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl program")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    signs = "-addext keyUsage=keyCertSign"  # which Python 3.13 asks for: ssl.VERIFY_X509_STRICT
    commands = (
        f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca {signs} -keyout ca-key.pem -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out request.pem",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out cert.pem",
    )
    for command in commands:
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1 << 16)
                        secured.sendall(PING)

        threading.Thread(target=serve, daemon=True).start()
        host = {"DOCKER_HOST": f"tcp://localhost:{server.getsockname()[1]}"}
        tls = {**host, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
        connect(settings(tmp_path, **tls)).close()
        with pytest.raises(EngineUnavailableError, match="not reachable"):
            connect(settings(tmp_path, **host))  # plain HTTP to it
        (tmp_path / "other").mkdir()
        make_certificates(tmp_path / "other")
        shutil.copy(tmp_path / "other/ca.pem", tmp_path)
        with pytest.raises(EngineUnavailableError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            connect(settings(tmp_path, **tls))
        server.shutdown(socket.SHUT_RDWR)


def test_an_endpoint_shows_as_its_address() -> None:
    assert str(Endpoint(url="unix:///x", source="the default")) == "unix:///x"


@pytest.mark.parametrize(
    ("server", "reads_zstd"),
    [
        (b"Server: Docker/20.10.24+dfsg1 (linux)\r\n", False),
        (b"Server: Docker/23.0.0 (linux)\r\n", True),
        (b"Server: Libpod/5.8.0 (linux)\r\n", True),
        (b"", True),
    ],
)
def test_what_an_engine_reads_is_told_by_its_product(tmp_path: Path, server: bytes, *, reads_zstd: bool) -> None:
    ping = PING.replace(b"Api-Version", server + b"Api-Version")
    with answering(tmp_path, ping) as (host, _), closing(connect(settings(tmp_path, DOCKER_HOST=host))) as engine:
        assert engine.reads_zstd is reads_zstd
