"""Whatever a neighbour puts into the images' repository or a disk does to a cache, `verify` expects the same image."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from tests import plans
from tests.integration.push_world import Machine, Project, Wheels, digests, make_base
from tests.oci.direct.wheels import as_wheel, make_wheel
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from tests.verify.images import tar
from training_imgtool.base.errors import InputError
from training_imgtool.base.settings import from_environment
from training_imgtool.model.load import load
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.direct import tree
from training_imgtool.oci.direct.base_files import _FIELD
from training_imgtool.oci.layers.layer_cache import (
    RECORDS,
    Record,
    dump_records,
    hash_fields,
    read_record,
    read_records,
)
from training_imgtool.oci.machine import Machine as OpenMachine
from training_imgtool.oci.registry.manifests import OCI_INDEX, sha256_digest
from training_imgtool.plan.inputs import prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.wheels.metadata import WheelMetadata
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.verify.remake import remake

PATH = "team/demo"
EVIL = {"app": tree.make_folder(tree.Attributes(0o777, 1000, 1000)), "etc": tree.Node(tree.Kind.LINK, target="/srv")}


@dataclass
class World:
    """A pushed spec, whose `files` go where only the base's layers tell what is there."""

    folder: Path
    server: MemoryRegistry
    project: Project

    def machine(self, name: str) -> Machine:
        """A machine that has the wheels and nothing else."""
        made = Machine(self.folder / name, f"{self.server.host}/team", self.server.host, IMGTOOL_ATTESTATIONS="off")
        made.give(self.project.wheels)
        return made

    def expected(self, machine: Machine) -> str:
        """The digest of the image that `verify` on this machine expects."""
        opened = OpenMachine.open(from_environment(machine.env))
        inputs = prepare(load(self.project.folder / "image.yaml"), opened, SpecChoice(locked=True))
        with remake(inputs, inputs.images[0], opened) as made:
            return made.image.digest

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """The manifests of the stages of packages, by tag."""
        rows = self.server.manifests[PATH]
        return {tag: json.loads(body) for tag, (_, body) in rows.items() if tag.startswith("packages-")}

    def put(self, tag: str, manifest: dict[str, Any]) -> None:
        """Puts a manifest in the place of another."""
        body = json.dumps(manifest).encode()
        media_type = self.server.manifests[PATH][tag][0]
        for name in (tag, sha256_digest(body)):
            self.server.manifests[PATH][name] = (media_type, body)

    def put_records(self, change: Callable[[dict[str, Record]], dict[str, Record]]) -> None:
        """Changes the records in every stage."""
        for tag, manifest in self.stages.items():
            annotations = manifest["config"].setdefault("annotations", {})
            annotations[RECORDS] = dump_records(change(read_records(annotations)))
            self.put(tag, manifest)

    def evil_layer(self) -> dict[str, Any]:
        """A layer with a file of the neighbour's, in the repository; its descriptor and diff ID."""
        archive = tar({"opt/venv/evil": b"evil"})
        data = gzip.compress(archive, mtime=0)
        self.server.blobs[PATH][sha256_digest(data)] = data
        return {"digest": sha256_digest(data), "size": len(data), "diffID": sha256_digest(archive)}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with MemoryRegistry(like_distribution, referrers=True) as server:
        base = make_base(docker=False, files=("etc/", "etc/app/", "usr/local/bin/python3"))
        base.put(server.host)
        project = Project(
            tmp_path / "project", Wheels(tmp_path / "wheels"), base, more="files: {conf: /etc/app/conf}\n"
        )
        project.write("conf", "x = 1\n")
        project.lock()
        made = World(tmp_path, server, project)
        made.machine("first").push(project)
        yield made


def _evil_tree() -> Record:
    return Record((), {_FIELD: tree.pack(tree.make_folder(children=EVIL))})


def _layer_tree(world: World) -> None:
    base = json.loads(world.project.base.manifest)["layers"]
    key = hash_fields({"kind": "files", "version": 1, "layer": base[0]["digest"]})
    world.put_records(lambda records: records | {key: _evil_tree()})


def _base_tree(world: World) -> None:
    base = json.loads(world.project.base.manifest)["layers"]
    key = hash_fields({"kind": "base", "version": 1, "layers": [layer["digest"] for layer in base]})
    world.put_records(lambda records: records | {key: _evil_tree()})


def _group_layers(world: World) -> None:
    evil = world.evil_layer()

    def change(records: dict[str, Record]) -> dict[str, Record]:
        rows = {}
        for key, record in records.items():
            layers = [{"name": layer.name, **layer.blob.document(), "diffID": layer.diff_id} for layer in record.layers]
            layers[0] |= evil
            body = {"key": key, "layers": layers, "claims": dict(record.claims or {})}
            rows[key] = read_record(json.dumps({**body, "check": hash_fields(body)}).encode(), key)
        return rows

    world.put_records(change)


def _claims(world: World) -> None:
    world.put_records(lambda records: {key: Record(record.layers, {}) for key, record in records.items()})


def _stage(world: World) -> None:
    evil = world.evil_layer()
    diff_id = evil.pop("diffID")
    for tag, manifest in world.stages.items():
        config = json.loads(base64.b64decode(manifest["config"]["data"]))
        config["rootfs"]["diff_ids"][-1] = diff_id
        config["config"]["Env"].append("EVIL=1")
        body = json.dumps(config).encode()
        world.server.blobs[PATH][sha256_digest(body)] = body
        manifest["config"] |= {
            "data": base64.b64encode(body).decode(),
            "digest": sha256_digest(body),
            "size": len(body),
        }
        manifest["layers"][-1] |= evil
        world.put(tag, manifest)


def _stage_of_the_base(world: World) -> None:
    manifest = json.loads(world.project.base.manifest)
    for name in ("config", "layers"):
        for row in [manifest[name]] if name == "config" else manifest[name]:
            world.server.blobs[PATH][row["digest"]] = world.server.blobs["library/python"][row["digest"]]
    for tag in world.stages:
        world.put(tag, manifest)


def _role_tags(world: World) -> None:
    for tag in [name for name in world.server.manifests[PATH] if name.startswith(("master-", "worker-", "ps-"))]:
        world.put(tag, json.loads(world.project.base.manifest))


def _referrers(world: World) -> None:
    rows = dict(world.server.manifests[PATH])
    entry = {"mediaType": OCI_INDEX, "digest": "sha256:" + "1" * 64, "size": 3, "artifactType": "evil"}
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}).encode()
    for name in rows:
        if name.startswith("sha256:"):
            world.server.manifests[PATH][name.replace(":", "-")] = (OCI_INDEX, body)


def _flip(machine: Machine, place: str, at: float) -> None:
    for path in (machine.cache / place).rglob("*.json"):
        data = bytearray(path.read_bytes())
        if data:
            data[int(len(data) * at)] ^= 1
        path.write_bytes(data)


def _exchange(machine: Machine) -> None:
    for folder in {path.parent for path in machine.cache.rglob("*.json")}:
        paths = sorted(folder.glob("*.json"))
        texts = [path.read_bytes() for path in paths]
        for path, text in zip(paths, [*texts[1:], *texts[:1]], strict=True):
            path.write_bytes(text)


@pytest.mark.parametrize(
    "poison",
    [_layer_tree, _base_tree, _group_layers, _claims, _stage, _stage_of_the_base, _role_tags, _referrers],
    ids=lambda poison: poison.__name__.strip("_"),
)
def test_what_a_neighbour_pushes_changes_no_expectation_and_enters_no_cache(
    world: World, poison: Callable[[World], None]
) -> None:
    sound = dict(world.server.manifests[PATH])
    poison(world)
    second = world.machine("second")
    for text in ("print('more')\n", "print('training')\n"):  # a change, and what the tags of the roles name
        world.project.write("trainer/task.py", text)
        second.start("push", "--locked", cwd=world.project.folder).communicate(timeout=60)
    world.project.write("trainer/task.py", "print('most')\n")
    assert world.expected(second) == world.expected(world.machine("empty"))
    world.server.manifests[PATH] = sound
    assert set(digests(second.push(world.project)).values()) == {world.expected(world.machine("other"))}


@pytest.mark.parametrize("damage", ["start", "middle", "end", "exchange"])
def test_a_damaged_cache_is_made_again(world: World, damage: str) -> None:
    machine = world.machine("second")
    world.project.write("trainer/task.py", "print('more')\n")
    machine.push(world.project, "--no-cache")
    if damage == "exchange":
        _exchange(machine)
    else:
        _flip(machine, "", {"start": 0.0, "middle": 0.5, "end": 0.99}[damage])
    world.project.write("trainer/task.py", "print('most')\n")
    images = machine.push(world.project)
    assert set(digests(images).values()) == {world.expected(machine)} == {world.expected(world.machine("empty"))}


@dataclass
class Index:
    """An index whose answers to requests for a part of a wheel are another wheel's."""

    answer: Path
    local: Path | None = None

    def path(self, wheel: Wheel) -> Path | None:
        """The wheel's file, once its hash was checked."""
        del wheel
        return self.local

    def require(self, wheel: Wheel) -> Path:
        """The same."""
        assert self.local is not None
        return self.path(wheel) or self.local

    def fetch(self, wheels: Iterable[Wheel]) -> None:
        """Everything is there."""

    def open_remote(self, wheel: Wheel) -> BinaryIO:
        """The lie."""
        del wheel
        return io.BytesIO(self.answer.read_bytes())


def test_what_an_index_says_of_a_wheel_is_not_believed_of_the_wheel_itself(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "tool", {"tool.py": b""}, requires=("absent",))
    (tmp_path / "lie").mkdir()
    lie = make_wheel(tmp_path / "lie", "tool", {"tool.py": b""})
    index, wheel = Index(lie), as_wheel(path)
    metadata = WheelMetadata(cast(WheelStore, index), tmp_path / "cache")

    def check(*, everything: bool) -> None:
        variant = replace(plans.locked(wheels=(wheel,)).variant, requirements=())
        metadata.check_closed((wheel,), variant, "linux/amd64", own=(), everything=everything)

    check(everything=True)
    index.local = path
    with pytest.raises(InputError, match="absent"):
        check(everything=False)
