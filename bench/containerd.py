"""A containerd that only the benchmark uses: pulls an image, unpacks it, runs a program in it, forgets it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processes import CpuGroup, FailedError, end

_PATIENCE = 60.0  # seconds until it answers
_CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "{socket}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containerd:
    """A running containerd, with a folder of its own."""

    socket: Path
    snapshotter: str
    version: str
    group: CpuGroup
    path: str  # PATH with its shim and runc

    def seconds(self) -> float:
        """CPU seconds of the daemon, its client and its containers so far."""
        return self.group.seconds()

    def pull(self, image: str) -> None:
        """Pulls and unpacks; raises FailedError."""
        self._ctr("images", "pull", "--plain-http", "--snapshotter", self.snapshotter, image)

    def run(self, image: str, *command: str) -> None:
        """Runs a program in a container, without a network, to its end; raises FailedError."""
        name = f"bench-{time.monotonic_ns()}"
        self._ctr("run", "--rm", "--cgroup", "", "--snapshotter", self.snapshotter, image, name, *command)

    def forget(self, image: str) -> None:
        """Removes the image with its content and its snapshots."""
        self._ctr("images", "remove", "--sync", image)

    def _ctr(self, *arguments: str) -> None:
        done = subprocess.run(
            self.group.around(["ctr", "--address", str(self.socket), *arguments]),
            env={**os.environ, "PATH": self.path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise FailedError(f"ctr {' '.join(arguments)}: {done.stderr.strip()[-800:]}")


@contextlib.contextmanager
def open_containerd(folder: Path, program: Path) -> Iterator[Containerd]:
    """Runs it until the block ends, with overlayfs where the kernel allows that; raises FailedError."""
    folder.mkdir(parents=True)
    socket, log = folder / "socket", folder / "log"
    (folder / "config.toml").write_text(_CONFIG.format(folder=folder, socket=socket))
    group = CpuGroup(f"imgtool-bench-{os.getpid()}-containerd")
    if not group.works:
        raise FailedError("no control group to count CPU seconds in: run as root")
    path = f"{program.parent}:/usr/sbin:{os.environ['PATH']}"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(program), "--config", str(folder / "config.toml")],
            env={**os.environ, "PATH": path}, cwd="/", stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
    group.enter(process.pid)
    try:
        _wait(socket, path, process, log)
        yield Containerd(
            socket=socket, snapshotter=_snapshotter(socket, path), version=_version(program), group=group, path=path
        )
    finally:
        end(process)
        group.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _run_ctr(socket: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", "--address", str(socket), *arguments]
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


def _wait(socket: Path, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if _run_ctr(socket, path, "version").returncode == 0:
            return
        time.sleep(0.2)
    raise FailedError(f"containerd does not come up:\n{log.read_text()[-1500:]}")


def _snapshotter(socket: Path, path: str) -> str:
    """`overlayfs` where it works, else `native`, which copies every layer whole."""
    rows = [line.split() for line in _run_ctr(socket, path, "plugins", "ls").stdout.splitlines()]
    works = {row[1] for row in rows if len(row) > 3 and row[0].endswith("snapshotter.v1") and row[-1] == "ok"}
    return "overlayfs" if "overlayfs" in works else "native"


def _version(program: Path) -> str:
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout.split()
    return said[2].lstrip("v") if len(said) > 2 else "?"


def image_size(host: str, reference: str) -> tuple[int, int, int]:
    """Layers, their bytes in the registry, and those of the largest, of an image on loopback."""
    from urllib.request import Request, urlopen

    repository, at, name = reference.removeprefix(f"{host}/").partition("@")
    if not at:
        repository, _, name = repository.rpartition(":")
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    with urlopen(Request(f"http://{host}/v2/{repository}/manifests/{name}", headers={"Accept": kinds})) as answer:
        sizes = [int(layer["size"]) for layer in json.load(answer)["layers"]]
    return len(sizes), sum(sizes), max(sizes)
