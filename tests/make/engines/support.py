"""A real Docker Engine for tests: a base image that needs no download, images to build, an engine to kill."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.forked_imgtool import enter_network
from tests.servers.running import running
from training_imgtool.base.progress import Event
from training_imgtool.base.settings import Settings, from_environment
from training_imgtool.make.engines.docker.connect import connect
from training_imgtool.make.engines.docker.engine import STAGES, DockerEngine, remove_image

BUSYBOX = Path("/bin/busybox")
T = TypeVar("T")
_made_up_keys: list[str] = []


class Events(list[Event]):
    """A Progress that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self if isinstance(event, kind)]


def settings(folder: Path, **environ: str) -> Settings:
    """Settings of a user without any configuration, whose home is `folder`."""
    return from_environment({"HOME": str(folder), "PATH": os.environ.get("PATH", ""), **environ})


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A tar of `files`, executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def build(engine: DockerEngine, text: str, files: Mapping[str, bytes] | None = None, *, key: str | None = None) -> str:
    """Has the engine build an image from a Dockerfile's text and files; returns its ID. It is found under `key`."""
    if key is None:
        key = hashlib.sha256(f"{text}{time.time_ns()}".encode()).hexdigest()
        _made_up_keys.append(key)
    context = io.BytesIO(tar_of({**(files or {}), "Dockerfile": text.encode()}))
    options = {"custom_context": True, "rm": True, "forcerm": True, "decode": True}
    with engine.api.ask("building an image for a test") as client:
        for event in client.build(fileobj=context, tag=f"{STAGES}:{key}", **options):
            assert "error" not in event, event
    return str(engine.image_id(key))


def busybox_base(engine: DockerEngine) -> str:
    """The ID of an image with a shell, built FROM scratch in `engine`; skips where busybox is not installed."""
    if not BUSYBOX.is_file():
        pytest.skip("no /bin/busybox (apt install busybox-static)")
    data = BUSYBOX.read_bytes()
    key = hashlib.sha256(b"busybox base for tests" + data).hexdigest()
    text = 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\n'
    return engine.image_id(key) or build(engine, text, {"busybox": data}, key=key)


@contextmanager
def shared_engine(folder: Path) -> Iterator[DockerEngine]:
    """The engine that this machine runs; images that `build` made without a key are removed."""
    host = os.environ.get("DOCKER_HOST")
    with closing(connect(settings(folder, **({"DOCKER_HOST": host} if host else {})), timeout=20)) as engine:
        try:
            yield engine
        finally:
            while _made_up_keys:
                remove_image(engine.api, f"{STAGES}:{_made_up_keys.pop()}")


def wait_for(condition: Callable[[], object], seconds: float) -> bool:
    """Whether `condition` became true within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


class PrivateEngine:
    """A second dockerd, which a test may kill. Needs root and the programs of docker.io."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.host = f"unix://{folder}/d.sock"

    def kill(self) -> None:
        """SIGKILL: connections break off without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


_PLAIN = "--bridge=none --iptables=false --storage-driver=vfs"  # what works in a container too
SERVICES = Path(__file__).resolve().parents[3] / ".services"


@functools.cache
def private_engine_missing() -> str | None:
    """Why no second dockerd can be started here, or None."""
    if os.geteuid() != 0:
        return "a private dockerd needs root"
    return next((f"no {name} program" for name in ("dockerd", "unshare", "ip") if not shutil.which(name)), None)


@contextmanager
def private_engine(
    version: str = "", *, options: str = _PLAIN, daemon: Mapping[str, Any] | None = None
) -> Iterator[PrivateEngine]:
    """Starts a dockerd in a folder and a network namespace of its own, and ends it with all that it started.

    In the machine's own network it would take away docker0, which the machine's engine needs (`--bridge=none` does).

    Args:
        version: a part of `scripts/services up`, such as `engine28`, whose programs are started; else this machine's.
        options: of dockerd.
        daemon: its configuration file.
    """
    if reason := private_engine_missing():
        pytest.skip(reason)
    programs = SERVICES / version / "bin" if version else None
    if programs and not (programs / "dockerd").exists():
        pytest.skip(f"no {version} (scripts/services up {version})")
    folder = Path(tempfile.mkdtemp(prefix="imgtool-engine-"))
    (folder / "daemon.json").write_text(json.dumps(daemon or {}))
    dockerd = f"dockerd -H unix://{folder}/d.sock --data-root {folder}/root --exec-root {folder}/exec -p {folder}/d.pid"
    dockerd += f" --config-file {folder}/daemon.json {options}"
    command = ["unshare", "--net", "--mount", "sh", "-c", f"ip link set lo up && exec {dockerd}"]
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"} if programs else None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    try:
        if not wait_for(lambda: _answers(folder / "d.sock") or process.poll() is not None, 60) or process.poll():
            pytest.skip(f"a private dockerd does not start: {(folder / 'log').read_text()[-500:]}")
        yield PrivateEngine(process, folder)
    finally:
        _end(process, folder)


_PODMAN = """
set -eu
ip link set lo up
mount --bind {root} {root}
mount -t proc proc {root}/proc
mount -t sysfs sysfs {root}/sys
mount -t cgroup2 cgroup2 {root}/sys/fs/cgroup
mount --rbind /dev {root}/dev
mount -t tmpfs tmpfs {root}/run
mkdir {root}/run/lock
mount --bind {folder} {root}/state
mount --bind {folder}/containers {root}/etc/containers
cd {root}
mkdir -p outside  # as the root of its own mounts: what joins a container's would else find the machine's files
pivot_root . outside
exec podman --root /state/storage --runroot /run/podman --cgroup-manager=cgroupfs --events-backend=file \\
  system service --time=0 unix:///state/d.sock
"""  # a cgroup2 of its own, since crun refuses the hybrid of both versions


@contextmanager
def private_podman(registry: str) -> Iterator[PrivateEngine]:
    """Starts the service of Podman 5 in namespaces of its own; it speaks plain HTTP with the registry at HOST:PORT."""
    root = SERVICES / "podman5/root"
    if reason := private_engine_missing():
        pytest.skip(reason)
    if not (root / "state").exists():
        pytest.skip("no podman5 (scripts/services up podman5)")
    folder = Path(tempfile.mkdtemp(prefix="imgtool-podman-"))
    settings = {
        "policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
        "registries.conf": f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n',
        "containers.conf": '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\npids_limit = 0\n',
    }
    (folder / "containers").mkdir()
    for name, text in settings.items():
        (folder / "containers" / name).write_text(text)
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, _PODMAN.format(root=root, folder=folder)], stdout=log, stderr=log)
    try:
        if not wait_for(lambda: _answers(folder / "d.sock") or process.poll() is not None, 60) or process.poll():
            pytest.skip(f"Podman's service does not start: {(folder / 'log').read_text()[-500:]}")
        yield PrivateEngine(process, folder)
    finally:
        _end(process, folder)


def in_network_of(pid: int, call: Callable[[], T]) -> T:
    """What `call` returns when it runs in the network namespace of a process; sockets that it makes stay there."""
    results: list[T] = []

    def run() -> None:
        enter_network(f"/proc/{pid}/ns/net")
        results.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def _answers(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as client, suppress(OSError):
        client.connect(str(path))
        client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b"200 OK" in client.recv(100)
    return False


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Ends dockerd, the containerd it left when it was killed, and the containers' shims, by their command lines."""
    process.kill()
    process.wait(20)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(folder) in (entry / "cmdline").read_bytes().decode(errors="replace"):
                os.kill(int(entry.name), signal.SIGKILL)
    time.sleep(0.2)
    for mount in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if mount.split()[1].startswith(str(folder)):
            subprocess.run(["umount", "-l", mount.split()[1]], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def registry_server(folder: Path) -> Iterator[str]:
    """A docker-registry of its own on a free port of 127.0.0.1; yields HOST:PORT."""
    port = free_port()
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/registry\n  delete:\n    enabled: true\n"
        f"http:\n  addr: 127.0.0.1:{port}\nlog:\n  level: error\n"
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        if not wait_for(lambda: _http_answers(f"http://127.0.0.1:{port}/v2/"), 20):
            pytest.skip("docker-registry does not start")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(20)


def _http_answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2):
        return True
    return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def refusing_server(
    status: int, body: str, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A registry that answers every request with the same status; yields HOST:PORT and the requests' lines."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            seen.append(self.requestline)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Says nothing."""

    for method in ("GET", "HEAD", "POST", "PUT", "PATCH"):
        setattr(Handler, f"do_{method}", Handler._answer)

    with running(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as host:
        yield host, seen
