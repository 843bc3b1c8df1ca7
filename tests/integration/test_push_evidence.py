"""Exit 0 of a push is evidence: registries that do not look for blobs, and expired layers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.push_world import Machine, Project, Wheels, document, make_base
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
def test_crane_on_disk_loses_a_layer(world: World) -> None:
    data = world.folder / "disk"
    with run_crane(world.folder / "crane", disk=data) as host:
        world.base.put(host)
        machine = world.machine(host)
        images = machine.push(world.project)
        layer = document(host, images["ps"])["layers"][1]["digest"].removeprefix("sha256:")
        (lost,) = (path for path in data.rglob("*") if path.is_file() and layer in str(path))
        lost.unlink()
        assert machine.push(world.project) == images  # the images are there, and not whole
        _validate(images.values())
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
            machine.push(world.project)
            images = machine.push(world.project)
            assert not [name for name in registry.broken() if name.partition(":")[2] in str(images)]


def test_what_a_registry_that_does_not_check_costs(world: World) -> None:
    with MemoryRegistry() as registry:
        world.base.put(registry.host)
        machine = world.machine(registry.host)
        images = machine.push(world.project)
        manifests = [json.loads(registry.manifests["team/demo"][ref.partition("@")[2]][1]) for ref in images.values()]
        blobs = {blob["digest"] for one in manifests for blob in (one["config"], *one["layers"])}
        registry.clear()
        machine.push(world.project)
        assert registry.counted() == {"HEAD manifests": 3, "GET manifests": 3, "HEAD blobs": len(blobs)}
        world.change()
        registry.clear()
        machine.push(world.project)
        shared = len(blobs) - 4  # without the code's layer and three configs
        assert registry.counted() == {
            "HEAD manifests": 6,  # images, and whether something has the tags of the statements
            "POST blobs": 8,  # the code, three configs, three statements, and whether the bill of materials is there
            "PUT blobs": 7,
            "PUT manifests": 12,  # images, bills, statements, and lists of those
            "HEAD blobs": shared,
        }


def test_what_was_sent_is_read_back(world: World) -> None:
    with MemoryRegistry() as registry:
        world.base.put(registry.host)
        machine = world.machine(registry.host)
        machine.run("push", "--locked", "--prove", cwd=world.project.folder)
        read = {asked.target for asked in registry.requests if asked.method == "GET" and "/blobs/" in asked.target}
        sent = {asked.target for asked in registry.requests if asked.method == "PUT" and "/blobs/" in asked.target}
        digests = {parse_qs(urlsplit(target).query)["digest"][0] for target in sent if "/demo/" in target}
        assert digests
        assert {digest for digest in digests if not any(target.endswith(digest) for target in read)} == set()


def test_a_registry_that_damages_what_it_stores_is_found_out_when_asked(world: World) -> None:
    with MemoryRegistry() as registry:
        world.base.put(registry.host)
        machine = world.machine(registry.host)
        registry.damages = True
        _, said = machine.run("push", "--locked", "--prove", cwd=world.project.folder, code=10)
        assert re.search(r"team/demo: blob [0-9a-f]{12} has other bytes from 0 on than this run sent", said)
