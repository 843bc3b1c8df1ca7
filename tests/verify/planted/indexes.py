"""Faults in the index over the images of several platforms, and indexes in the place of an image."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.verify.planted.layers import EVIL, Plant, header
from tests.verify.planted.world import Forgery, World
from training_imgtool.model.spec import Role
from training_imgtool.oci.registry.manifests import DOCKER_INDEX, OCI_INDEX, OCI_MANIFEST

Entries = list[dict[str, Any]]
_UNKNOWN = {"architecture": "unknown", "os": "unknown"}
_ATTESTATION = {"vnd.docker.reference.type": "attestation-manifest"}


def evil(world: World, **platform: str) -> dict[str, Any]:
    """The entry of an image with a layer more."""
    with_layer = Forgery(world)
    with_layer.add_layer(header("usr/bin/evil", data=EVIL) + bytes(1024))
    tag = world.tag()
    before = world.manifests[tag]
    with_layer.put()
    body = world.manifests[tag][1]
    world.manifests[tag] = before
    return world.put_manifest(body, OCI_MANIFEST) | ({"platform": platform} if platform else {})


def _set(number: int, **fields: Any) -> Callable[[World, Entries], Any]:
    return lambda _, entries: entries[number].update(fields)


def _platform(**fields: Any) -> Callable[[World, Entries], Any]:
    return lambda _, entries: entries[0]["platform"].update({name.replace("__", "."): v for name, v in fields.items()})


def _insert(at: int, **fields: Any) -> Callable[[World, Entries], Any]:
    return lambda world, entries: entries.insert(at, evil(world) | fields)


def _nest(world: World, entries: Entries) -> None:
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    entries[:] = [world.put_manifest(body, OCI_INDEX) | {"platform": entries[0]["platform"]}]


_LINUX = {"architecture": "amd64", "os": "linux"}
ENTRIES: dict[str, Callable[[World, Entries], Any]] = {
    "evil first, without a platform": _insert(0),
    "evil last, without a platform": _insert(2),
    "evil with an empty platform": _insert(0, platform={}),
    "evil of an unknown platform": _insert(0, platform={"architecture": "amd64", "os": "unknown"}),
    "evil for the same platform": _insert(0, platform=_LINUX),
    "evil for a variant": _insert(0, platform=_LINUX | {"variant": "v3"}),
    "evil for another name of the platform": _insert(0, platform={"architecture": "x86_64", "os": "linux"}),
    "evil for another platform": _insert(2, platform={"architecture": "s390x", "os": "linux"}),
    "evil as an attestation": _insert(2, annotations=_ATTESTATION, platform=_UNKNOWN),
    "evil in the place of the image": lambda world, entries: entries[0].update(evil(world)),
    "an entry to nothing": _set(0, digest=f"sha256:{'0' * 64}"),
    "one less": lambda _, entries: entries.pop(),
    "one twice": lambda _, entries: entries.append(dict(entries[0])),
    "another order": lambda _, entries: entries.reverse(),
    "images swapped": lambda _, entries: (entries[0].update(platform=entries[1]["platform"])),
    "an index in the index": _nest,
    "no platform": lambda _, entries: entries[0].pop("platform"),
    "a variant": _platform(variant="v1"),
    "features": _platform(features=["sse4"]),
    "another system": _platform(os="windows"),
    "size": _set(0, size=5),
    "a type of another family": _set(0, mediaType="application/vnd.docker.distribution.manifest.v2+json"),
    "annotations": _set(0, annotations={"org.opencontainers.image.ref.name": "latest"}),
    "an attestation's annotation": _set(1, annotations=_ATTESTATION),
    "urls": _set(0, urls=["https://example.com/evil"]),
    "a field more": _set(0, evil=1),
    "an entry that is none": lambda _, entries: entries.append("evil"),  # type: ignore[arg-type]
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "annotations": {"a": "b"},
    "subject": {"mediaType": OCI_MANIFEST, "digest": f"sha256:{'0' * 64}", "size": 2},
    "artifactType": "application/vnd.evil",
    "mediaType": DOCKER_INDEX,
    "schemaVersion": 1,
    "layers": [],
    "config": {},
    "unknown": 1,
    "manifests": None,
}
SPELLINGS: dict[str, Callable[[str], bytes | str]] = {
    "blanks": lambda text: json.dumps(json.loads(text)),
    "a name twice": lambda text: text.replace("{", '{"manifests":[],', 1),
    "a name in capitals": lambda text: text.replace("{", '{"Manifests":[],', 1),
    "a platform twice": lambda text: text.replace('"platform":{', '"platform":{},"platform":{', 1),
    "NaN": lambda text: text.replace("{", '{"a":NaN,', 1),
}


def _index_tag(world: World) -> str:
    return world.tag(inputs=world.inputs.named_by_index())


def _plant(
    change: Callable[[World, dict[str, Any]], Any], edit: Callable[[str], bytes | str] = str
) -> Callable[[World], None]:
    def plant(world: World) -> None:
        tag = _index_tag(world)
        media_type, body = world.manifests[tag]
        document = json.loads(body)
        change(world, document)
        edited = edit(json.dumps(document, sort_keys=True, separators=(",", ":")))
        data = edited.encode() if isinstance(edited, str) else edited
        world.put_manifest(data, document.get("mediaType") or media_type, tag)

    return plant


def _of_entries(change: Callable[[World, Entries], Any]) -> Callable[[World], None]:
    return _plant(lambda world, document: change(world, document["manifests"]))


def _update(_: World, document: dict[str, Any], **fields: Any) -> None:
    document.update(fields)


def _image_for_index(world: World) -> None:
    world.manifests[_index_tag(world)] = world.manifests[world.tag()]


def index_faults() -> dict[str, Callable[[World], None]]:
    """Every fault of an index."""
    faults = {f"entries: {name}": _of_entries(change) for name, change in ENTRIES.items()}
    faults |= {f"index: {name}": _plant(partial(_update, **{name: value})) for name, value in FIELDS.items()}
    faults |= {f"bytes: {name}": _plant(lambda *_: None, edit) for name, edit in SPELLINGS.items()}
    return faults | {"an image in the place of the index": _image_for_index}


def _instead(*entries: Callable[[World, dict[str, Any]], dict[str, Any]], media_type: str = OCI_INDEX) -> Plant:
    """Puts an index in the place of an image that has none; each entry is made of the good one's descriptor."""

    def plant(forgery: Forgery) -> None:
        world = forgery.world
        good = world.put_manifest(world.manifests[world.tag()][1], OCI_MANIFEST)
        rows = [make(world, good) for make in entries]
        forgery.media_type = media_type
        forgery.body = json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": rows}).encode()

    return plant


def _good(_: World, good: dict[str, Any]) -> dict[str, Any]:
    return good | {"platform": _LINUX}


def _role(world: World, _: dict[str, Any]) -> dict[str, Any]:
    return world.put_manifest(world.manifests[world.tag(Role.PS)][1], OCI_MANIFEST) | {"platform": _LINUX}


INSTEAD: dict[str, Plant] = {
    "the image alone": _instead(_good),
    "evil without a platform and the image": _instead(lambda world, _: evil(world), _good),
    "the image and evil without a platform": _instead(_good, lambda world, _: evil(world)),
    "evil and the image": _instead(lambda world, _: evil(world, os="linux", architecture="amd64"), _good),
    "the image without a platform": _instead(lambda _, good: good),
    "another role": _instead(_role),
    "the image in Docker's list": _instead(_good, media_type=DOCKER_INDEX),
    "nothing": _instead(),
    "the image and an attestation": _instead(_good, lambda world, _: evil(world) | {"annotations": _ATTESTATION}),
}
