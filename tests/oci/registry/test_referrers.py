"""Referrers: the registry's own list, the tag that stands in for it, and what neither may lose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.integration.push_world import referrers
from tests.oci.registry.support import clients, image, layer, machine
from tests.servers.memory_registry import MemoryRegistry, like_distribution
from tests.servers.scripted import Reply, ScriptedServer
from training_imgtool.base.errors import RegistryRefusedError
from training_imgtool.base.reference import Digest, parse_repository
from training_imgtool.oci.registry.client import Registry
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import (
    LARGEST_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    sha256_digest,
)
from training_imgtool.oci.registry.referrers import attach, referrer_manifest

BLOB = b"content"
CONTENT = Descriptor("application/vnd.test", sha256_digest(BLOB), len(BLOB))


class World:
    """A registry with one image in it."""

    def __init__(self, folder: Path, server: MemoryRegistry) -> None:
        self.server = server
        self.registries = Registries(machine(folder))
        self.repository = parse_repository(f"{server.host}/team/image")
        self.registry: Registry = self.registries.at(self.repository)
        body = image(layer(b"1"))
        self.descriptor = Descriptor(OCI_MANIFEST, sha256_digest(body), len(body))
        self.subject: Digest = self.repository.digest(self.descriptor.digest)
        self.registry.upload(self.repository, CONTENT, lambda: iter((BLOB,)))

    def manifest(self, name: str) -> bytes:
        return referrer_manifest(self.descriptor, f"application/vnd.{name}", (CONTENT.document(),), config=CONTENT)

    def names(self) -> list[str]:
        return [one["artifactType"].removeprefix("application/vnd.") for one in referrers(str(self.subject))]


@pytest.fixture(params=[False, True], ids=["tag", "api"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with MemoryRegistry(like_distribution, referrers=request.param) as server:
        made = World(tmp_path, server)
        with made.registries:
            yield made


def test_what_is_attached_is_listed_once(world: World) -> None:
    assert world.names() == []
    for name in ("one", "two", "three", "two"):
        attach(world.registry, world.subject, world.manifest(name))
    assert sorted(world.names()) == ["one", "three", "two"]


def test_a_first_referrer_costs_one_request_or_two(world: World) -> None:
    world.server.clear()
    attach(world.registry, world.subject, world.manifest("one"), is_first=True)
    assert dict(world.server.counted()) == {"PUT manifests": 1 if world.server.referrers else 2}
    assert world.names() == ["one"]


def test_the_list_under_the_tag_is_what_the_specification_says(tmp_path: Path) -> None:
    with MemoryRegistry(like_distribution) as server:
        world = World(tmp_path, server)
        attach(world.registry, world.subject, world.manifest("one"))
        media_type, body = server.manifests["team/image"][world.subject.digest.replace(":", "-")]
    index = json.loads(body)
    (entry,) = index["manifests"]
    assert media_type == index["mediaType"] == OCI_INDEX
    assert entry["digest"] == sha256_digest(world.manifest("one"))
    assert entry["artifactType"] == "application/vnd.one"


def test_what_others_listed_in_fewer_words_is_listed_once(tmp_path: Path) -> None:
    with MemoryRegistry(like_distribution) as server:
        world = World(tmp_path, server)
        for name in ("one", "two"):
            attach(world.registry, world.subject, world.manifest(name))
        tag = world.repository.tag(world.subject.digest.replace(":", "-"))
        index = json.loads(world.registry.manifest(tag).body)
        del index["manifests"][0]["artifactType"]
        world.registry.put_manifest(tag, OCI_INDEX, json.dumps(index).encode())
        attach(world.registry, world.subject, world.manifest("one"))
        assert world.names() == ["two", "one"]


def test_a_tag_that_somebody_else_uses_is_left_alone(tmp_path: Path) -> None:
    with MemoryRegistry(like_distribution) as server:
        world = World(tmp_path, server)
        name = world.subject.digest.replace(":", "-")
        world.registry.put_manifest(world.repository.tag(name), OCI_MANIFEST, world.manifest("theirs"))
        before = server.manifests["team/image"][name]
        with pytest.raises(RegistryRefusedError, match="names something else"):
            attach(world.registry, world.subject, world.manifest("one"))
        assert server.manifests["team/image"][name] == before


def test_a_list_whose_manifests_a_clean_up_took_is_mended(tmp_path: Path) -> None:
    """As docker-registry's `garbage-collect --delete-untagged` does."""
    with MemoryRegistry(like_distribution) as server:
        world = World(tmp_path, server)
        attach(world.registry, world.subject, world.manifest("one"))
        attach(world.registry, world.subject, world.manifest("two"))
        del server.manifests["team/image"][sha256_digest(world.manifest("one"))]
        attach(world.registry, world.subject, world.manifest("three"))
        assert world.names() == ["two", "three"]
        attach(world.registry, world.subject, world.manifest("one"))
        assert world.names() == ["two", "three", "one"]
        assert server.broken() == []


def test_a_list_that_is_too_large_to_read_whole_is_refused(tmp_path: Path) -> None:
    """Its beginning may be a list of its own."""
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
    for spaces, refused in ((0, False), (LARGEST_MANIFEST, True)):
        server = ScriptedServer([Reply(200, index + b" " * spaces, {"Content-Type": OCI_INDEX})])
        with server, clients(machine(tmp_path)) as registries:
            place = parse_repository(f"{server.host}/team/image")
            with pytest.raises(RegistryRefusedError) if refused else nullcontext():
                registries.at(place).find_referrers(place.digest(sha256_digest(b"")))
