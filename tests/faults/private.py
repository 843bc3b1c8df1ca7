"""A project beside an engine and a registry of its own, in a network of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.base import put_base
from tests.faults.project import Project
from tests.make.engines.support import PrivateEngine
from tests.servers.registry_process import PROGRAM, run_registry


@dataclass(frozen=True)
class Private:
    """The project, its engine, and the words that start a command in the engine's network, where its registry is."""

    project: Project
    engine: PrivateEngine
    before: tuple[str, ...]


@contextmanager
def private_project(folder: Path, start: Callable[[str], AbstractContextManager[PrivateEngine]]) -> Iterator[Private]:
    """A project whose base is in the registry.

    Args:
        folder: for everything.
        start: starts the engine, which trusts the registry at HOST:PORT; the port is free in the engine's network too.
    """
    with run_registry(folder / "registry") as registry:
        put_base(registry.host)
    (folder / "user").mkdir()
    project = Project(folder / "user")
    with start(registry.host) as engine, (folder / "registry/log").open("ab") as log:
        before = ("nsenter", f"--net=/proc/{engine.process.pid}/ns/net", "--")
        project.env |= {
            "DOCKER_HOST": engine.host,
            "IMGTOOL_REGISTRY": f"{registry.host}/team",
            "IMGTOOL_MIRRORS": f"docker.io={registry.host}",
        }
        command = [*before, PROGRAM, "serve", str(folder / "registry/config.yml")]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield Private(project, engine, before)
            finally:
                process.kill()
