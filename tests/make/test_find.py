"""Which images a command needs of the registry, and what it says of those that are not there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.oci.registry.support import Events, image, layer, machine
from tests.servers.memory_registry import MemoryRegistry
from training_imgtool.base.errors import InputError
from training_imgtool.base.progress import Done
from training_imgtool.base.reference import parse_repository
from training_imgtool.make.find import find_images, require_images
from training_imgtool.oci.machine import Machine
from training_imgtool.oci.registry.manifests import OCI_MANIFEST


def test_only_the_wanted_images_are_required(tmp_path: Path) -> None:
    with MemoryRegistry() as server, Machine.open(machine(tmp_path), Events()) as here:
        repository = parse_repository(f"{server.host}/team/image")
        roles = [
            SimpleNamespace(
                role=role,
                key=role,
                recipe=SimpleNamespace(template=None),
                tag=(tag := repository.tag(role)),
                registry_tag=tag,
            )
            for role in ("a", "b")
        ]
        digest = here.registries.at(repository).put_manifest(roles[0].tag, OCI_MANIFEST, image(layer(b"1")))
        inputs = cast("Any", SimpleNamespace(images=tuple(roles), spec_file=SimpleNamespace(path="image.yaml")))
        wanted = cast("Any", (roles[0],))
        found = require_images(inputs, here, wanted)
        assert found == {"a": repository.digest(digest)}
        with pytest.raises(InputError, match=r"1 of 2 images .* are not in the registry: b") as caught:
            require_images(inputs, here)
        assert caught.value.details == (f"b: {repository.tag('b')}",)


def test_roles_of_one_key_share_the_image_that_any_tag_names(tmp_path: Path) -> None:
    with MemoryRegistry() as server, Machine.open(machine(tmp_path), events := Events()) as here:
        repository = parse_repository(f"{server.host}/team/image")
        images = cast(
            "Any",
            [
                SimpleNamespace(
                    role=role,
                    key="k",
                    recipe=SimpleNamespace(template=None),
                    registry_tag=repository.tag(role),
                    tag=role,
                )
                for role in "abc"
            ],
        )
        digest = here.registries.at(repository).put_manifest(repository.tag("b"), OCI_MANIFEST, image(layer(b"1")))
        assert find_images(images, here) == dict.fromkeys("abc", repository.digest(digest))
        assert [event.text for event in events.all if isinstance(event, Done)] == ["a", "b", "c"]
        other = here.registries.at(repository).put_manifest(repository.tag("c"), OCI_MANIFEST, image(layer(b"2")))
        found = find_images(images, here)
        assert found == {role: repository.digest(other if role == "c" else digest) for role in "abc"}
