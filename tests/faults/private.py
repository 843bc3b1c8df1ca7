"""A project beside an engine and a registry of its own, in a network of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.support import PrivateEngine
from tests.faults.base import put_base
from tests.faults.project import Project
from tests.servers.registry_process import PROGRAM, run_registry


@dataclass(frozen=True)
class Private:
    """The project, its engine, and the words that start a command in the engine's network, where its registry is."""

    project: Project
    engine: PrivateEngine
    before: tuple[str, ...]


@contextmanager
def private_project(folder: Path, engine: PrivateEngine) -> Iterator[Private]:
    """A project whose base is in the registry. The registry's port is one that is free in the engine's network too."""
    before = ("nsenter", f"--net=/proc/{engine.process.pid}/ns/net", "--")
    with run_registry(folder / "registry") as registry:
        put_base(registry.host)
    (folder / "user").mkdir()
    project = Project(folder / "user")
    project.env |= {
        "DOCKER_HOST": engine.host,
        "IMGTOOL_REGISTRY": f"{registry.host}/team",
        "IMGTOOL_MIRRORS": f"docker.io={registry.host}",
    }
    command = [*before, PROGRAM, "serve", str(folder / "registry/config.yml")]
    with (folder / "registry/log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Private(project, engine, before)
        finally:
            process.kill()
