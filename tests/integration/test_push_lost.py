"""Memory of pushes that is wrong: a registry that lost blobs or stages, records that are wrong, a half-sent blob."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import (
    Machine,
    Project,
    Wheels,
    check_whole,
    digests,
    document,
    make_base,
)
from tests.oci.registry.support import machine as settings_of
from tests.servers.fault_proxy import Action, Fault, FaultProxy
from tests.servers.registry_process import run_registry
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.layers.layer_cache import RECORDS, hash_fields
from training_imgtool.oci.registry.connect import Registries

pytestmark = pytest.mark.registry


class World:
    """A registry whose storage tests may harm, a project, and a machine that has its wheels."""

    def __init__(self, folder: Path, proxy: FaultProxy) -> None:
        self.folder, self.proxy, self.data = folder, proxy, folder / "data"
        base = make_base()
        base.put(proxy.host)
        self.wheels = Wheels(folder / "wheels")
        self.project = Project(folder / "project", self.wheels, base)
        self.machine = self.another("one")
        self.machine.give(self.wheels)

    def another(self, name: str) -> Machine:
        return Machine(self.folder / name, f"{self.proxy.host}/lost", self.proxy.host)

    def push(self, machine: Machine | None = None) -> dict[str, str]:
        """Pushes, and looks whether all of it is there."""
        images = (machine or self.machine).push(self.project)
        check_whole(self.proxy.upstream, images.values())
        return images

    def layers(self, reference: str) -> list[str]:
        return [layer["digest"] for layer in document(self.proxy.upstream, reference)["layers"]]

    def change(self, text: str = "print('more')\n") -> None:
        self.project.write("trainer/task.py", text)
        self.proxy.clear()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with run_registry(tmp_path / "registry", data=tmp_path / "data") as running, FaultProxy(running.host) as proxy:
        yield World(tmp_path, proxy)


def test_a_registry_that_lost_everything_of_the_repository(world: World) -> None:
    before = world.push()
    shutil.rmtree(world.data / "docker/registry/v2/repositories/lost")
    assert world.push() == before
    world.change()
    assert world.push().keys() == before.keys()


@pytest.mark.long
def test_a_stage_that_lost_its_manifest_only(world: World) -> None:
    before = world.push()
    tags = world.data / "docker/registry/v2/repositories/lost/demo/_manifests/tags"
    for tag in tags.glob("packages-[0-9a-f]*"):
        shutil.rmtree(tag)
    world.change()
    world.push()
    assert not any("/packages-" in exchange.path for exchange in world.proxy.log)  # this machine knows the stage
    world.change("print('even more')\n")
    after = world.push(world.another("two"))  # the variant's last packages name the layers, so no wheel is needed
    assert world.layers(after["ps"])[:-1] == world.layers(before["ps"])[:-1]
    assert not list((world.folder / "two").rglob("*.whl"))


def test_records_that_are_wrong(world: World) -> None:
    """The last packages name layers that nobody has: these are made anew."""
    before = world.push()
    _forge_records(world.proxy.upstream, lambda record: record["layers"][0].update(digest=f"sha256:{'0' * 64}"))
    tags = world.data / "docker/registry/v2/repositories/lost/demo/_manifests/tags"
    for tag in [tag for tag in tags.iterdir() if "latest" not in tag.name]:
        shutil.rmtree(tag)
    second = world.another("two")
    second.give(world.wheels)
    assert digests(world.push(second)) == digests(before)
    for tag in tags.iterdir():
        shutil.rmtree(tag)
    assert digests(world.push(second)) == digests(before)


def _forge_records(host: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the records that the last packages carry, and their checks, as who pushes to the repository can."""
    repository = parse_repository(f"{host}/lost/demo")
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        client = registries.at(repository)
        tag = repository.tag("packages-latest-cpu-linux-amd64")
        manifest = dict(client.manifest(tag).document)
        annotations = manifest["config"]["annotations"]
        records = {key: json.loads(text) for key, text in json.loads(annotations[RECORDS]).items()}
        for record in records.values():
            del record["check"]
            change(record)
        signed = {key: json.dumps({**record, "check": hash_fields(record)}) for key, record in records.items()}
        manifest["config"] |= {"annotations": {RECORDS: json.dumps(signed)}}
        client.put_manifest(tag, manifest["mediaType"], json.dumps(manifest).encode())


@pytest.mark.long
def test_a_tag_that_somebody_else_took_meanwhile(world: World) -> None:
    """A registry with immutable tags has an image of the same key, made elsewhere: that one is it."""
    images = world.push()
    repository = parse_repository(images["master"].partition("@")[0])
    with Registries(settings_of(world.folder)) as registries:
        client = registries.at(repository)
        other = client.manifest(repository.digest(images["worker"].partition("@")[2]))
        tag = next(path.rpartition("/")[2] for e in world.proxy.log if "/master-" in (path := e.path))
        client.put_manifest(repository.tag(tag), other.media_type, other.body)
    body = b'{"errors":[{"code":"MANIFEST_INVALID","message":"cannot update tag: tag immutability is enabled"}]}'
    world.proxy.add(Fault(action=Action.ANSWER, method="HEAD", path="/manifests/master-", status=404))
    world.proxy.add(Fault(action=Action.ANSWER, method="PUT", path="/manifests/master-", status=400, body=body))
    assert world.push() == {**images, "master": images["worker"]}


def test_a_cache_that_is_deleted_during_a_push_costs_time(world: World) -> None:
    world.wheels.add("tensorflow_cpu", version="2.15.1", size=2_100_000)
    world.project.lock()
    world.machine.give(world.wheels)

    def delete(*answer: Any) -> Any:
        shutil.rmtree(world.machine.cache / "layers", ignore_errors=True)
        return answer

    world.proxy.add(Fault(action=Action.CHANGE, method="POST", path="/blobs/", times=1, change=delete))
    _, said = world.machine.run("push", "--locked", cwd=world.project.folder)
    # whether imgtool starts again depends on which layers were open already; the push succeeds in both cases
    assert "sent 2.1 MB" in said or "somebody deleted the cache" in said
    world.push(world.another("two"))
