"""Exit 0 of a push is evidence: registries that do not look for blobs, and expired layers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.integration.push_world import Machine, Project, Wheels, make_base
from tests.servers.fault_proxy import FaultProxy
from tests.servers.memory_registry import MemoryRegistry
from tests.servers.registry_process import CRANE, run_crane

needs_crane = pytest.mark.skipif(shutil.which(CRANE) is None, reason="crane is not installed")


class World:
    """A project, and machines that have its wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = Wheels(folder / "wheels")
        self.base = make_base()
        self.project = Project(folder / "project", self.wheels, self.base)

    def machine(self, host: str, name: str = "one", team: str = "team") -> Machine:
        made = Machine(self.folder / name, f"{host}/{team}", host)
        made.give(self.wheels)
        return made

    def change(self) -> None:
        self.project.write("trainer/task.py", "print('more')\n")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _validate(images: Iterable[str]) -> None:
    for image in images:
        subprocess.run([CRANE, "validate", "--remote", image], check=True, capture_output=True)


@needs_crane
def test_crane_gets_large_blobs_side_by_side(world: World) -> None:
    """It holds the lock of its store while it reads an upload."""
    _add_large_wheels(world)
    with run_crane(world.folder / "crane") as host:
        world.base.put(host)
        _validate(world.machine(host).push(world.project).values())


def test_a_proxy_that_lets_one_request_at_a_time_through(world: World) -> None:
    _add_large_wheels(world)
    with MemoryRegistry() as registry, FaultProxy(registry.host, serial=True) as proxy:
        world.base.put(registry.host)
        world.machine(proxy.host).run("push", "--locked", cwd=world.project.folder, timeout=30)
        assert registry.broken() == []


def _add_large_wheels(world: World) -> None:
    for number in range(4):
        world.wheels.add(f"large{number}", size=17 << 20)
    world.project.lock()
