"""Exit 0 of a push is evidence: registries that do not look for blobs, and expired layers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, Wheels, document, make_base
from tests.servers.fault_proxy import FaultProxy
from tests.servers.memory_registry import MemoryRegistry, like_ecr
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
def test_crane_in_memory_starts_again_empty(world: World) -> None:
    with run_crane(world.folder / "crane") as host:
        world.base.put(host)
        machine = world.machine(host)
        images = machine.push(world.project)
        _validate(images.values())
    with run_crane(world.folder / "crane", port=int(host.rpartition(":")[2])) as host:
        world.base.put(host)
        assert machine.push(world.project) == images
        _validate(images.values())


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


@needs_crane
def test_crane_on_disk_loses_a_layer(world: World) -> None:
    data = world.folder / "disk"
    with run_crane(world.folder / "crane", disk=data) as host:
        world.base.put(host)
        machine = world.machine(host)
        images = machine.push(world.project)
        layer = document(host, images["ps"])["layers"][1]["digest"].removeprefix("sha256:")
        (lost,) = (path for path in data.rglob("*") if path.is_file() and layer in str(path))
        lost.unlink()
        world.change()
        _validate(machine.push(world.project).values())


@pytest.mark.parametrize("refusal", [like_ecr, None], ids=["like ECR", "lax"])
def test_layers_expire_while_the_manifests_stay(world: World, refusal: Any) -> None:
    with MemoryRegistry(refusal) as registry:
        world.base.put(registry.host)
        first, another = world.machine(registry.host), world.machine(registry.host, "another that has seen nothing")
        first.push(world.project)
        for machine in (first, another):
            registry.blobs["team/demo"].clear()
            world.project.write("trainer/task.py", f"print({machine.root.name!r})\n")
            images = machine.push(world.project)
            assert not [name for name in registry.broken() if name.partition(":")[2] in str(images)]
