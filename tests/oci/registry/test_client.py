"""What the client refuses of a registry's indexes, and of what it is to put."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oci.registry.support import image, layer, machine
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.base.errors import RegistryRefusedError
from training_imgtool.base.reference import parse_repository
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import (
    LARGEST_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    index_body,
    parse_manifest,
)

LINUX = {"os": "linux", "architecture": "amd64"}


def test_an_index_names_images_and_no_further_index(tmp_path: Path) -> None:
    with MemoryRegistry() as server, Registries(machine(tmp_path)) as registries:
        repository = parse_repository(f"{server.host}/team/image")
        registry, body, kind = registries.at(repository), image(layer(b"1")), OCI_MANIFEST
        for tag in ("image", "index", "outer"):
            digest = registry.put_manifest(repository.tag(tag), kind, body)
            manifest = parse_manifest(body, kind, tag)
            kind, body = OCI_INDEX, index_body([{**manifest.descriptor.document(), "platform": LINUX}])[1]
            if tag != "outer":
                made = registry.manifest(repository.tag(tag), "linux/amd64")
                assert made.digest == (digest if tag == "image" else made.digest)
                assert not made.is_index
        with pytest.raises(
            RegistryRefusedError, match="the index's entry for linux/amd64 is another index, not an image"
        ):
            registry.manifest(repository.tag("outer"), "linux/amd64")


def test_a_manifest_that_no_registry_takes_is_not_sent(tmp_path: Path) -> None:
    with MemoryRegistry() as server, Registries(machine(tmp_path)) as registries:
        repository = parse_repository(f"{server.host}/team/image")
        body = image(layer(b"1"))
        with pytest.raises(RegistryRefusedError, match=f"registries accept at most {LARGEST_MANIFEST}"):
            registries.at(repository).put_manifest(
                repository.tag("a"), OCI_MANIFEST, body + b" " * (LARGEST_MANIFEST + 1 - len(body))
            )
        assert not server.requests
        registries.at(repository).put_manifest(
            repository.tag("a"), OCI_MANIFEST, body + b" " * (LARGEST_MANIFEST - len(body))
        )
