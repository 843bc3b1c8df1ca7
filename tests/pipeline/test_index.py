"""What `verify` says of an index: it names the images of the platforms, each once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.registry.support import image, layer, machine
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.core.reference import parse_repository
from training_imgtool.pipeline.platforms import check_index
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_INDEX, OCI_MANIFEST, Descriptor, sha256_digest

BODIES = {"amd64": image(layer(b"1")), "arm64": image(layer(b"2"))}
OTHER = image(layer(b"3"))


def _entry(body: bytes, architecture: str, **more: str) -> dict[str, Any]:
    described = Descriptor(OCI_MANIFEST, sha256_digest(body), len(body)).document()
    return described | {"platform": {"os": "linux", "architecture": architecture, **more}}


AMD, ARM = (_entry(body, architecture) for architecture, body in BODIES.items())


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([AMD, ARM], None),
        ([ARM, {**AMD, "annotations": {"a": "b"}}], None),
        ([AMD], "it names"),
        ([_entry(OTHER, "amd64"), ARM], f"{sha256_digest(OTHER)} for linux/amd64"),
        ([_entry(OTHER, "amd64"), AMD, ARM], f"{sha256_digest(OTHER)} for linux/amd64"),
        ([_entry(OTHER, "amd64", variant="v3"), AMD, ARM], f"{sha256_digest(OTHER)} for linux/amd64"),
        ([AMD, ARM, {**_entry(OTHER, "x"), "platform": "linux"}], f"{sha256_digest(OTHER)} for no platform"),
    ],
)
def test_an_index(tmp_path: Path, entries: list[dict[str, Any]], says: str | None) -> None:
    with MemoryRegistry() as server, Registries(machine(tmp_path)) as registries:
        repository = parse_repository(f"{server.host}/team/image")
        registry = registries.at(repository)
        every = []
        for architecture, body in BODIES.items():
            tag = repository.tag(architecture)
            registry.put_manifest(tag, OCI_MANIFEST, body)
            role = SimpleNamespace(registry_tag=tag)
            plan = SimpleNamespace(platform=f"linux/{architecture}")
            every.append(SimpleNamespace(plan=plan, selected=lambda _, role=role: (role,)))
        document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
        digest = registry.put_manifest(repository.tag("index"), OCI_INDEX, json.dumps(document).encode())
        inputs = cast("Any", SimpleNamespace(by_platform=every))
        said = check_index(inputs, cast("Any", SimpleNamespace(role="worker")), repository.digest(digest), registries)
    assert (said is None) if says is None else (said is not None and says in said)
