"""A project whose stages run on BuildKit: the docker driver, and the remote driver over TCP. Both are Docker Engine 28.

imgtool has no engine of its own there: DOCKER_HOST leads nowhere, except for the docker driver, whose endpoint it is.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.private import private_project
from tests.faults.project import NO_ENGINE, SPEC, Ended, Project
from tests.make.engines.support import SERVICES, PrivateEngine, private_engine, wait_for
from tests.servers.buildkit_proxy import BuildKitProxy, buildkit_proxy, engine_proxy

BUILDX = SERVICES / "buildx/bin"
SECRET = "canary-b7e2f6a1c9d4"
WHEEL_NAMES = (b"numpy-1.26.4", b"tensorflow_cpu-2.15.1")  # which a context with wheels names, and no Dockerfile


@dataclass
class BuildKitWorld:
    """The project, its builder, and the words that start a command in the network of engine and registry."""

    project: Project
    engine: PrivateEngine
    proxy: BuildKitProxy
    before: tuple[str, ...]
    driver: str
    options: tuple[str, ...] = ()

    def write_lines(self, *run: str, later: Sequence[str] = (), more: str = "") -> None:
        """Gives the spec lines for a shell, on the base and after the packages."""
        text = f"run: {json.dumps(run)}\nrun_after_packages: {json.dumps(later)}\n{more}"
        self.project.spec(SPEC + text)

    def write_template(self, **blocks: str) -> None:
        """Gives the worker a template with these blocks."""
        text = "".join(f"{{% block {name} %}}\n{body}\n{{% endblock %}}\n" for name, body in blocks.items())
        self.project.write("own.j2", f'{{% extends "base.Dockerfile.j2" %}}\n{text}')
        self.project.spec(SPEC.replace("  worker: {machine", "  worker: {template: own.j2, machine"))

    def push(self, *arguments: str, code: int = 0, env: dict[str, str | None] | None = None) -> Ended:
        """Runs `imgtool push` with the builder."""
        return self.run("push", *self.options, *arguments, code=code, env=env)

    def run(self, *arguments: str, code: int = 0, env: dict[str, str | None] | None = None) -> Ended:
        """Runs imgtool; a failure must be one clear error."""
        ended = self.project.run(*arguments, before=self.before, env=env, timeout=180)
        assert ended.code == code, ended.err
        if code:
            assert len([line for line in ended.err.splitlines() if line.startswith("Error: ")]) == 1, ended.err
        return ended

    def buildx(self, *arguments: str) -> None:
        """Runs buildx as the project's user."""
        command = [*self.before, str(BUILDX / "docker-buildx"), *arguments]
        subprocess.run(command, env=self.project.env, check=True, capture_output=True)

    def restart(self, command: list[str]) -> None:
        """Starts the engine again in its network, once it was killed."""
        (self.engine.folder / "d.pid").unlink(missing_ok=True)
        environ = {**os.environ, "PATH": f"{SERVICES / 'engine28/bin'}:{os.environ['PATH']}"}
        with (self.engine.folder / "log").open("ab") as log:
            self.engine.process = subprocess.Popen([*self.before, *command], stdout=log, stderr=log, env=environ)
        socket = self.engine.host.removeprefix("unix://")
        ping = ["curl", "--silent", "--fail", "--unix-socket", socket, "http://docker/_ping"]
        assert wait_for(lambda: subprocess.run(ping, check=False, capture_output=True).returncode == 0, 60)

    def engine_command(self) -> list[str]:
        """The command line of the engine."""
        words = Path(f"/proc/{self.engine.process.pid}/cmdline").read_text().split("\0")
        return [word for word in words if word]


@contextmanager
def buildkit_world(folder: Path, driver: str, options: str = "") -> Iterator[BuildKitWorld]:
    """Starts everything.

    Args:
        folder: for the project and the registry.
        driver: `remote`, or `docker`.
        options: further options of dockerd.
    """
    if not (BUILDX / "docker-buildx").exists():
        pytest.skip("no buildx (scripts/services up buildx)")
    daemon = {"features": {"containerd-snapshotter": True}}

    def start(_: str) -> object:
        return private_engine("engine28", options=options, daemon=daemon)

    with (
        private_project(folder, start) as made,  # type: ignore[arg-type]
        _proxy(made.engine, driver) as proxy,
        Path(f"/proc/{made.engine.process.pid}/ns/net").open("rb") as network,  # it outlives the engine
    ):
        before = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{network.fileno()}", "--")
        project = made.project
        mirror = project.env["IMGTOOL_MIRRORS"]
        project.env |= {"IMGTOOL_BUILDER_REGISTRIES": mirror, "PATH": f"{BUILDX}:{project.env['PATH']}"}
        proxy.needles = WHEEL_NAMES
        world = BuildKitWorld(project, made.engine, proxy, before, driver)
        project.env["DOCKER_HOST"] = proxy.address
        if driver == "remote":
            project.env["DOCKER_HOST"] = NO_ENGINE
            world.buildx("create", "--name", "team", "--driver", "remote", proxy.address)
            world.options = ("--builder", "team")
        try:
            yield world
        finally:
            made.engine.kill()  # it may be another process than the one that the engine began with


def _proxy(engine: PrivateEngine, driver: str) -> AbstractContextManager[BuildKitProxy]:
    if driver == "remote":
        return buildkit_proxy(engine.host, beside=engine.process.pid)
    return engine_proxy(engine.host, engine.folder / "p.sock")
