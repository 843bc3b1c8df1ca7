"""A registry of one's own on a free port: docker-registry (plain, TLS, token server, read-only) or crane's."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "docker-registry"
CRANE = "crane"


def installed() -> bool:
    """Whether docker-registry can be run here."""
    return shutil.which(PROGRAM) is not None


@dataclass(frozen=True)
class RunningRegistry:
    """A registry that answers."""

    host: str
    process: subprocess.Popen[bytes]
    log: Path


def list_tags(host: str, repository: str) -> list[str]:
    """The tags of a repository; none where no registry answers, or it lacks the repository."""
    try:
        with urllib.request.urlopen(f"http://{host}/v2/{repository}/tags/list", timeout=10) as answer:
            return json.load(answer)["tags"] or []
    except (urllib.error.URLError, ValueError, KeyError):
        return []


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def run_registry(
    folder: Path,
    *,
    data: Path | None = None,
    tls: tuple[Path, Path] | None = None,
    auth: str = "",
) -> Iterator[RunningRegistry]:
    """Runs a registry until the block ends.

    Args:
        folder: for its configuration and log.
        data: where its blobs are; by default in `folder`.
        tls: certificate and key, PEM.
        auth: the `auth:` section's YAML, if any.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = ["version: 0.1", "log: {level: warn}", "storage:"]
    lines += [f"  filesystem: {{rootdirectory: {data or folder / 'data'}}}", "  delete: {enabled: true}"]
    lines += ["http:", f"  addr: 127.0.0.1:{port}"]
    lines += [f"  tls:\n    certificate: {tls[0]}\n    key: {tls[1]}"] if tls else []
    config = folder / "config.yml"
    config.write_text("\n".join([*lines, auth]) + "\n")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([PROGRAM, "serve", str(config)], stdout=output, stderr=output, cwd=folder)
    try:
        _wait(process, port, log)
        yield RunningRegistry(f"127.0.0.1:{port}", process, log)
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def run_crane(folder: Path, *, disk: Path | None = None, port: int | None = None) -> Iterator[str]:
    """Runs `crane registry serve`, which accepts manifests of blobs that it does not have, until the block ends.

    Args:
        folder: for its log.
        disk: where its blobs are; by default in memory.
        port: where it listens; by default on a free port.

    Yields HOST:PORT.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    command = [CRANE, "registry", "serve", "--address", f"127.0.0.1:{port}"]
    if disk:
        disk.mkdir(exist_ok=True)
        command += ["--disk", str(disk)]
    with _serve(command, folder, port) as host:
        yield host


@contextlib.contextmanager
def _serve(command: list[str], folder: Path, port: int) -> Iterator[str]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    try:
        _wait(process, port, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(3000):
        if process.poll() is not None:
            raise RuntimeError(f"the registry ended: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the registry does not listen on {port}")
