"""What the contenders meet: a registry of our own, a counting proxy before it, and an Engine of our own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers import Peers, version_of
from bench.processes import CpuGroup, FailedError, end, process_seconds, run
from tests.servers.fault_proxy import FaultProxy
from tests.servers.registry_process import RunningRegistry, run_registry

# Addresses for documentation, so nobody's.
_BRIDGES = {False: ("imgtbench0", "192.0.2.1/25"), True: ("imgtbench1", "192.0.2.129/25")}
_STORE = {"containerd-snapshotter": True}
_PATIENCE = 60.0  # seconds until a fresh Engine answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A Docker Engine that only the benchmark uses, so that its state can be thrown away and its CPU time counted."""

    docker: Path
    socket: str
    config: Path  # DOCKER_CONFIG, with the buildx plugin
    version: str
    modern: bool  # BuildKit that knows COPY --link and the containerd image store
    group: CpuGroup
    pid: int | None

    @property
    def environ(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.socket, "DOCKER_CONFIG": str(self.config), "PATH": os.environ["PATH"], "HOME": "/"}

    def seconds(self) -> float:
        """CPU seconds of the daemons and of what runs in containers; 0 when they cannot be told from others."""
        if self.pid is None:
            return 0.0
        return self.group.seconds() if self.group.works else process_seconds(self.pid)

    def do(self, *arguments: str) -> str:
        """Runs `docker ARGUMENTS`; raises FailedError."""
        return run([str(self.docker), *arguments], environ=self.environ, folder=Path("/")).output


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The services of one run."""

    folder: Path
    registry: RunningRegistry
    proxy: FaultProxy
    base: str  # REPOSITORY:TAG@DIGEST without a host
    engines: Mapping[str, Engine] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # who failed, where and how

    def host(self, *, counted: bool) -> str:
        """HOST:PORT of the registry, directly or through the proxy."""
        return self.proxy.host if counted else self.registry.host

    def registry_seconds(self) -> float:
        """CPU seconds that the registry used so far."""
        return process_seconds(self.registry.process.pid)


@contextlib.contextmanager
def open_registry(folder: Path) -> Iterator[tuple[RunningRegistry, FaultProxy]]:
    """A registry and a proxy before it, until the block ends."""
    with run_registry(folder / "registry") as registry, FaultProxy(registry.host) as proxy:
        yield registry, proxy


def copy_base(source: str, reference: str, target: str) -> str:
    """Copies an image REPOSITORY:TAG from one loopback registry to another; returns REPOSITORY:TAG@DIGEST."""
    from training_imgtool.base.reference import Repository
    from training_imgtool.base.settings import from_environment
    from training_imgtool.oci.registry.connect import Registries

    repository, _, tag = reference.partition(":")
    with Registries(from_environment({"HOME": "/nonexistent"})) as registries:
        there, here = Repository(source, repository), Repository(target, repository)
        manifest = registries.at(there).manifest(there.tag(tag))
        for blob in (manifest.config, *manifest.layers):
            registries.copy_blob(there, blob, here, subject="base", progress=lambda _: None)
        registries.at(here).put_manifest(here.tag(tag), manifest.media_type, manifest.body)
    return f"{reference}@{manifest.digest}"


@contextlib.contextmanager
def open_engine(folder: Path, peers: Peers, dockerd: Path, *, modern: bool) -> Iterator[Engine]:
    """A dockerd on its own socket and folder until the block ends; raises FailedError when none comes up.

    A second Engine would fight for docker0, or take it away from the first when told to have no bridge at all
    (`--bridge=none` deletes it), and nothing that is built here needs one: each gets a bridge that leads nowhere, and
    builds may ask for the host's network.
    """
    assert peers.docker is not None
    folder.mkdir(parents=True)
    config = folder / "config"
    (config / "cli-plugins").mkdir(parents=True)
    if peers.buildx:
        (config / "cli-plugins" / "docker-buildx").symlink_to(peers.buildx)
    settings = folder / "daemon.json"
    chosen = {"builder": {"Entitlements": {"network-host": True}}, **({"features": _STORE} if modern else {})}
    settings.write_text(json.dumps(chosen))
    group = CpuGroup(f"imgtool-bench-{os.getpid()}-{folder.name}")
    socket = f"unix://{folder / 'socket'}"
    command = [str(dockerd), "--config-file", str(settings), "--data-root", str(folder / "data")]
    command += ["--exec-root", str(folder / "exec"), "-H", socket, "--pidfile", str(folder / "pid")]
    command += [f"--bridge={_BRIDGES[modern][0]}", "--iptables=false", "--ip6tables=false"]
    command += [f"--cgroup-parent=/{group.name}"] if group.works else []
    _bridge("add", modern=modern)
    environ = {**os.environ, "PATH": f"{dockerd.parent}:/usr/sbin:{os.environ['PATH']}"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environ, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    group.enter(process.pid)
    engine = Engine(
        docker=peers.docker, socket=socket, config=config, version=_number(version_of([str(dockerd), "--version"])),
        modern=modern, group=group, pid=process.pid,
    )  # fmt: skip
    try:
        _wait(engine, process, folder / "log")
        yield engine
    finally:
        end(process)
        _bridge("del", modern=modern)
        group.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _number(text: str) -> str:
    """`28.5.2` of `Docker version 28.5.2+dfsg4, build 3ef3c07`."""
    match = re.search(r"\d+\.\d+\.\d+", text)
    return match[0] if match else text


def _bridge(verb: str, *, modern: bool) -> None:
    name, address = _BRIDGES[modern]
    commands = [["ip", "link", verb, name, "type", "bridge"]]
    commands += [["ip", "addr", "add", address, "dev", name]] if verb == "add" else []
    for command in commands:
        subprocess.run(command, capture_output=True, check=False)


def _wait(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(FailedError):
            engine.do("version", "--format", "{{.Server.Version}}")
            return
        time.sleep(0.2)
    raise FailedError(f"dockerd does not come up:\n{log.read_text()[-1500:]}")
