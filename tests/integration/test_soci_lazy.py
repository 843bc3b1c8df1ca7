"""A training step in an image that SOCI 0.4.1 mounts lazily: bytes that the snapshotter fetches.

containerd 2.1 and SOCI's snapshotter run in a mount namespace of their own: SOCI's database has a fixed place, and its
snapshotter speaks TLS alone, also to this machine, so the registry has a name and a certificate there.
`scripts/services up engine28 readers` fetches both. The file systems are FUSE and overlayfs: this needs root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.support import SERVICES, wait_for
from tests.servers.certificates import make_certificate
from tests.servers.registry_process import PROGRAM, installed, run_registry
from tests.servers.relay import pass_on, serve

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.network, pytest.mark.slow, pytest.mark.long]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAMS, SOCI = SERVICES / "engine28" / "bin", SERVICES / "soci" / "root" / "usr" / "bin"
SPEC = """\
name: lazy
tensorflow: "2.15.1"
python: "3.11"
trainer: train.py
roles: {master: {}}
job: {target: compose}
"""
STEP = """\
import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
loss = model.train_on_batch(np.ones((16, 4), "float32"), np.ones((16, 1), "float32"))
print("trained", tf.__version__, float(loss) >= 0)
"""
CONTAINERD = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "{folder}/socket"
"""
LAZY = """\
[proxy_plugins.soci]
  type = "snapshot"
  address = "{folder}/soci.socket"
"""
SNAPSHOTTER = """\
[background_fetch]
  disable = true
"""
NAME = "registry.test"


class Counter:
    """A registry's port, and the bytes that it sent to whoever asked."""

    def __init__(self, upstream: str) -> None:
        self.sent = 0
        self._upstream = upstream
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"{NAME}:{self._listener.getsockname()[1]}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Passes connections on until the block ends."""
        with serve(self._listener, self._answer):
            yield

    def _answer(self, client: socket.socket) -> None:
        address, _, port = self._upstream.partition(":")
        with client, _Counted(socket.create_connection((address, int(port))), self._add) as server:
            pass_on(client, server)

    def _add(self, size: int) -> None:
        with self._lock:
            self.sent += size


class _Counted(socket.socket):
    """A connection that says how much it received."""

    def __init__(self, connection: socket.socket, count: Callable[[int], None]) -> None:
        super().__init__(fileno=connection.detach())
        self._count = count

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self._count(len(data))
        return data


@dataclass(frozen=True)
class Machine:
    """containerd and the snapshotter of a machine that has nothing yet."""

    folder: Path
    namespace: int  # the process that holds the mounts
    environ: Mapping[str, str]

    def run(self, program: str, *arguments: object, timeout: float = 600) -> str:
        """Runs `ctr` or `soci` beside them; fails with what it said."""
        path = (SOCI if program == "soci" else PROGRAMS) / program
        words = [*self.enter, path, "--address", self.folder / "socket", *arguments]
        done = subprocess.run(
            [*map(str, words)], capture_output=True, text=True, check=False, timeout=timeout, env=self.environ
        )
        if done.returncode:
            log = (self.folder / "soci.log").read_text(errors="replace")[-3000:]
            pytest.fail(f"{program} {arguments}: {done.stdout[-1000:]}{done.stderr[-3000:]}\n{log}")
        return done.stdout

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command that runs beside them."""
        return ("nsenter", f"--mount=/proc/{self.namespace}/ns/mnt", "--")


@contextmanager
def _machine(folder: Path, certificate: Path) -> Iterator[Machine]:
    folder.mkdir()
    (folder / "containerd.toml").write_text((CONTAINERD + LAZY).format(folder=folder))
    (folder / "soci.toml").write_text(SNAPSHOTTER)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {NAME}\n")
    hold = (
        f"mount --bind {folder}/hosts /etc/hosts && mount -t tmpfs tmpfs /var/lib "
        "&& mkdir /var/lib/soci-snapshotter-grpc && echo ready && exec sleep 7200"
    )
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", hold], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        path = f"{PROGRAMS}:{os.environ['PATH']}:/usr/sbin"
        environ = {**os.environ, "PATH": path, "SSL_CERT_FILE": str(certificate), "NO_PROXY": NAME, "no_proxy": NAME}
        machine = Machine(folder, holder.pid, environ)
        snapshotter = (SOCI / "soci-snapshotter-grpc", "--address", folder / "soci.socket", "--root", folder / "lazy")
        commands = {
            "soci": (*snapshotter, "--config", folder / "soci.toml"),
            "containerd": (PROGRAMS / "containerd", "--config", folder / "containerd.toml"),
        }
        processes = []
        try:
            for name, command in commands.items():
                with (folder / f"{name}.log").open("wb") as log:
                    words = [*machine.enter, *map(str, command)]
                    processes.append(subprocess.Popen(words, stdout=log, stderr=log, env=environ))
            ask = [*machine.enter, str(PROGRAMS / "ctr"), "--address", str(folder / "socket"), "version"]
            assert wait_for(lambda: not subprocess.run(ask, capture_output=True, check=False).returncode, 60)
            yield machine
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(30)
            mounts = [line.split()[4] for line in Path(f"/proc/{holder.pid}/mountinfo").read_text().splitlines()]
            for mount in sorted((row for row in mounts if row.startswith(str(folder))), key=len, reverse=True):
                subprocess.run([*machine.enter, "umount", "--lazy", mount], check=False)
            holder.kill()
    shutil.rmtree(folder)


def _push(imgtool: Run, registry: str, folder: Path) -> str:
    """Pushes the image; returns REPOSITORY@DIGEST without the host."""
    folder.mkdir()
    (folder / "image.yaml").write_text(SPEC)
    (folder / "train.py").write_text(STEP)
    done = imgtool("push", cwd=folder, env={"IMGTOOL_REGISTRY": f"{registry}/lazy"}, timeout=1500)
    reference = re.search(r"\S+@sha256:[0-9a-f]{64}", done.stdout)
    assert reference is not None, done.stdout
    return reference[0].removeprefix(f"{registry}/")


def _image_bytes(registry: str, name: str) -> int:
    repository, _, digest = name.partition("@")
    url = f"http://{registry}/v2/{repository}/manifests/{digest}"
    kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": kinds})) as answer:
        return sum(int(layer["size"]) for layer in json.load(answer)["layers"])


def test_a_training_step_fetches_less_than_the_image(
    imgtool: Run, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not (SOCI / "soci").exists() or not (PROGRAMS / "containerd").exists():
        pytest.skip("no SOCI or no containerd 2 (scripts/services up engine28 readers)")
    if not installed() or os.geteuid():
        pytest.skip(f"no {PROGRAM}, or not root")
    data, certificate = tmp_path / "data", make_certificate(tmp_path / "certificate", name=NAME)
    with (
        run_registry(tmp_path / "plain", data=data) as plain,
        run_registry(tmp_path / "tls", data=data, tls=certificate) as registry,
    ):
        counter = Counter(registry.host)
        with counter.serving():
            name = _push(imgtool, plain.host, tmp_path / "project")
            size = _image_bytes(plain.host, name)
            fetched = _train(counter, f"{counter.host}/{name}", tmp_path, certificate[0])
            figures = f"{size} bytes, pulled and read: {fetched}"
            record_property("figures", figures)
            print(figures)
    assert fetched[1] < 0.9 * size


def _train(counter: Counter, reference: str, folder: Path, certificate: Path) -> tuple[int, int]:
    """Indexes the image, and trains in it on another machine; returns the bytes after the pull, and after the step."""
    with _machine(folder / "indexes", certificate) as machine:
        machine.run("ctr", "content", "fetch", reference)
        machine.run("soci", "create", reference)
        machine.run("soci", "push", reference)
    counter.sent = 0
    with _machine(folder / "trains", certificate) as machine:
        machine.run("soci", "image", "rpull", reference)
        mounts = subprocess.run([*machine.enter, "cat", "/proc/mounts"], capture_output=True, text=True, check=True)
        lazy = [line for line in mounts.stdout.splitlines() if f"{folder}/trains/lazy" in line and " fuse" in line]
        assert lazy, (folder / "trains/soci.log").read_text()[-3000:]
        pulled = counter.sent
        said = machine.run("ctr", "run", "--rm", "--snapshotter", "soci", reference, "step", timeout=1500)
        assert "trained 2.15.1 True" in said
    return pulled, counter.sent
