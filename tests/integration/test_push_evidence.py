"""Exit 0 of a push is evidence: registries that do not look for blobs, expired layers, forged layer records."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.push_world import Machine, Project, Wheels, digests, document, make_base
from tests.registry.support import machine as settings_of
from tests.servers.memory_registry import MemoryRegistry, like_distribution, like_ecr
from tests.servers.registry_process import CRANE, run_crane
from training_imgtool.core.reference import parse_repository
from training_imgtool.direct.layers.layer_cache import hash_fields
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_MANIFEST, Descriptor, sha256_digest

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
            "HEAD manifests": 3,
            "POST blobs": 5,  # the code, three configs, and whether the bill of materials is there
            "PUT blobs": 4,
            "PUT manifests": 9,  # images, attestations, and lists of those
            "HEAD blobs": shared,
        }


Forge = Callable[[dict[str, Any], Descriptor], None]


def _evil_layer(record: dict[str, Any], evil: Descriptor) -> None:
    record["layers"][0] |= evil.document() | {"diffID": evil.digest}


def _wrong_length(record: dict[str, Any], _: Descriptor) -> None:
    for layer in record["layers"]:
        layer["size"] -= 1
        layer["digest"] = sha256_digest(layer["digest"].encode())


def _wrong_size(record: dict[str, Any], _: Descriptor) -> None:
    for layer in record["layers"]:
        layer["size"] -= 1


def _named_twice(record: dict[str, Any], _: Descriptor) -> None:
    record["layers"].append({**record["layers"][0], "name": "again"})


def _forge(registry: MemoryRegistry, forge: Forge) -> None:
    """Rewrites every layer record of `team`, as whoever may write there can."""
    store = parse_repository(f"{registry.host}/team/imgtool-layers")
    evil = Descriptor("application/vnd.oci.image.layer.v1.tar+gzip", sha256_digest(b"evil"), 4)
    registry.blobs["team/imgtool-layers"][evil.digest] = b"evil"
    with Registries(settings_of(Path("/nonexistent"))) as registries:
        client = registries.at(store)
        for name in [name for name in registry.manifests["team/imgtool-layers"] if name.startswith("layers-")]:
            manifest: dict[str, Any] = dict(client.manifest(store.tag(name)).document)
            record = json.loads(manifest["annotations"]["dev.imgtool.layers"])
            del record["check"]
            forge(record, evil)
            manifest["annotations"] = {"dev.imgtool.layers": json.dumps({**record, "check": hash_fields(record)})}
            registry.refusal = None
            client.put_manifest(store.tag(name), OCI_MANIFEST, json.dumps(manifest).encode())
            registry.refusal = like_distribution


def _forget_images(registry: MemoryRegistry, team: str) -> None:
    registry.manifests[f"{team}/demo"].clear()
    registry.blobs[f"{team}/demo"].clear()


def _has_evil(registry: MemoryRegistry, images: Mapping[str, str]) -> bool:
    return any(sha256_digest(b"evil") in str(document(registry.host, image)) for image in images.values())


@pytest.mark.parametrize("forge", [_evil_layer, _wrong_length, _wrong_size, _named_twice])
def test_the_blast_radius_of_a_forged_record(world: World, forge: Forge) -> None:
    """Images that are made later in that place, at most; nothing else, and `--no-cache` is the way out."""
    with MemoryRegistry(like_distribution) as registry:
        world.base.put(registry.host)
        clean = digests(world.machine(registry.host).push(world.project))
        _forge(registry, forge)
        _forget_images(registry, "team")
        victim = world.machine(registry.host, "victim")
        images = victim.push(world.project)
        assert _has_evil(registry, images) == (forge is _evil_layer)
        if forge is not _evil_layer:
            assert digests(images) == clean
        victim.env["IMGTOOL_REGISTRY"] = f"{registry.host}/other"
        assert digests(victim.push(world.project)) == clean
        victim.env["IMGTOOL_REGISTRY"] = f"{registry.host}/team"
        assert digests(victim.push(world.project, "--no-cache")) == clean
        _forget_images(registry, "team")
        assert digests(world.machine(registry.host, "later").push(world.project)) == clean
