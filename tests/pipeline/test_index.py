"""What `verify` says of an index: it is byte for byte the one that imgtool writes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.registry.support import config, image, layer, machine
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.core.reference import parse_repository
from training_imgtool.pipeline.platforms import check_index
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_INDEX, OCI_MANIFEST, Descriptor, index_body, sha256_digest

CONFIGS = {
    architecture: json.dumps({"os": "linux", "architecture": architecture}).encode()
    for architecture in ("amd64", "arm64")
}
BODIES = {name: image(layer(name.encode()), config_content=content) for name, content in CONFIGS.items()}
OTHER = image(layer(b"3"))


def _entry(body: bytes, architecture: str, **more: str) -> dict[str, Any]:
    described = Descriptor(OCI_MANIFEST, sha256_digest(body), len(body)).document()
    return described | {"platform": {"architecture": architecture, "os": "linux", **more}}


AMD, ARM = (_entry(body, architecture) for architecture, body in BODIES.items())
NAMELESS = {key: value for key, value in _entry(OTHER, "amd64").items() if key != "platform"}


@pytest.mark.parametrize(
    ("entries", "is_right"),
    [
        ([AMD, ARM], True),
        ([ARM, AMD], False),
        ([AMD], False),
        ([AMD, {**ARM, "annotations": {"a": "b"}}], False),
        ([_entry(OTHER, "amd64"), ARM], False),
        ([_entry(OTHER, "amd64"), AMD, ARM], False),
        ([AMD, ARM, {**_entry(OTHER, "x"), "platform": "linux"}], False),
        ([NAMELESS, AMD, ARM], False),
    ],
)
def test_an_index(tmp_path: Path, *, entries: list[dict[str, Any]], is_right: bool) -> None:
    with MemoryRegistry() as server, Registries(machine(tmp_path)) as registries:
        repository = parse_repository(f"{server.host}/team/image")
        registry = registries.at(repository)
        every = []
        for architecture, body in BODIES.items():
            content = CONFIGS[architecture]
            registry.upload(repository, config(content), lambda content=content: iter((content,)))  # type: ignore[misc]
            tag = repository.tag(architecture)
            registry.put_manifest(tag, OCI_MANIFEST, body)
            role = SimpleNamespace(registry_tag=tag)
            plan = SimpleNamespace(platform=f"linux/{architecture}")
            every.append(SimpleNamespace(plan=plan, selected=lambda _, role=role: (role,)))
        _, body = index_body(entries)
        digest = registry.put_manifest(repository.tag("index"), OCI_INDEX, body)
        inputs = cast("Any", SimpleNamespace(by_platform=every))
        said = check_index(inputs, cast("Any", SimpleNamespace(role="worker")), repository.digest(digest), registries)
    assert (said is None) is is_right
