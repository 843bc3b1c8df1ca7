"""Adds layers and settings to a base's config and manifest. This module changes JSON documents and reads no files.

Formats: OCI image specification 1.1 (config, manifest) and Docker's schema 2, which differ only in media types. Unknown
fields stay as they are. The new manifest has the format of the base's manifest, so that no layer's media type changes.
Only OCI defines zstd layers, so an image with a zstd layer gets an OCI manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from training_imgtool.base.errors import NeedsEngineError, VerificationError
from training_imgtool.base.reference import Repository
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.manifests import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_MANIFEST,
    LARGEST_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_LAYER_ZSTD,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    read_document,
    sha256_digest,
)

MOST_LAYERS = 127  # the most that Docker's overlay driver mounts
WHOLE_IMAGE_HINT = "--engine buildx has buildx build the whole image"
EMPTY = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
"""The diff ID of an archive without entries, 1024 zeros."""
HISTORY_COMMENT = "imgtool"  # in the lines that imgtool adds to the history
_TO_OCI = {
    DOCKER_LAYER_GZIP: OCI_LAYER_GZIP,
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": OCI_LAYER_ZSTD,  # BuildKit writes it on top of OCI's zstd
}
_CREATED = "1970-01-01T00:00:00Z"  # the same for every image, so that equal inputs give equal bytes
_FOREIGN = ("foreign", "nondistributable")
_SETTINGS: dict[str, type] = {
    **dict.fromkeys(("User", "WorkingDir", "StopSignal"), str),
    **dict.fromkeys(("Env", "Entrypoint", "Cmd", "Shell", "OnBuild"), list),  # lists of texts
    **dict.fromkeys(("Labels", "Volumes", "ExposedPorts", "Healthcheck"), dict),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One line of an image's history: an instruction, and the layer that the instruction made, if it made one."""

    text: str
    layer: LayerSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectImage:
    """A whole image, ready to be pushed.

    Attributes:
        base_layers: the layers that the base's repository already has, lowest first.
        layers: the new layers above them.
        manifest: the exact bytes of the manifest, of type `manifest_type`; `digest` is their digest.
        config: the exact bytes of the config; `config_descriptor` is their descriptor.
    """

    base_layers: tuple[Descriptor, ...]
    layers: tuple[LayerSource, ...]
    config: bytes
    config_descriptor: Descriptor
    manifest: bytes
    manifest_type: str
    digest: str
    diff_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in a registry: the exact bytes of its manifest and config, and the repository that has its layers."""

    manifest: Manifest
    config: bytes
    repository: Repository


def read_config(data: bytes) -> dict[str, Any]:
    """Reads a base's config (OCI image specification 1.1, "Image Configuration"); keeps unknown fields.

    Raises VerificationError if the bytes are not a config, or if a field has a type that engines cannot read.
    """
    try:
        config = read_document(data)
    except ValueError as error:
        raise VerificationError("the base's config is not JSON that every engine reads") from error
    if not isinstance(config, dict) or not isinstance(config.get("rootfs"), dict):
        raise VerificationError("the base's config has no rootfs, so the base is not an image for containers")
    if not all(isinstance(digest, str) for digest in _list(config["rootfs"].get("diff_ids"))):
        raise VerificationError("the base's config: rootfs.diff_ids is not a list of digests")
    if not all(isinstance(line, dict) for line in _list(config.get("history"))):
        raise VerificationError("the base's config: history is not a list of objects")
    settings = config.get("config")
    if settings is not None and not isinstance(settings, dict):
        raise VerificationError("the base's config: `config` is not an object")
    _check_settings(settings or {})
    config["rootfs"]["diff_ids"] = config["rootfs"].get("diff_ids") or []
    return config


def _check_settings(settings: Mapping[str, Any]) -> None:
    for key, kind in _SETTINGS.items():
        value = settings.get(key)
        items = (
            value if isinstance(value, list) else value.values() if key == "Labels" and isinstance(value, dict) else ()
        )
        if value is not None and not (isinstance(value, kind) and all(isinstance(item, str) for item in items)):
            raise VerificationError(f"the base's config: {key} is {json.dumps(value)[:60]}, which engines cannot read")


def dump_document(document: Any) -> bytes:
    """Formats a manifest or a config as JSON; equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _list(value: Any) -> list[Any]:
    """Returns a list unchanged, an empty list for null, and `[None]`, which fails every check, for other values."""
    return value or [] if isinstance(value, list | None) else [None]


def assemble(
    base: Manifest, base_config: bytes, settings: Mapping[str, Any], history: tuple[History, ...]
) -> DirectImage:
    """Assembles an image that has the layers of `history` on top of a base.

    Args:
        base: the base's manifest, of one platform.
        base_config: the bytes of the base's config.
        settings: the whole new `config` object (Env, Entrypoint, …).
        history: the lines of history, in order.

    Raises:
        VerificationError: the base's manifest and config contradict each other.
        NeedsEngineError: too many layers, or layers that must not be pushed again.
    """
    config = read_config(base_config)
    diff_ids = config["rootfs"]["diff_ids"]
    if len(diff_ids) != len(base.layers):
        raise VerificationError(f"base {base.digest}: the config and the manifest name different numbers of layers")
    layers = tuple(line.layer for line in history if line.layer)
    if len(base.layers) + len(layers) > MOST_LAYERS:
        raise NeedsEngineError(
            f"the image needs {len(layers)} layers on top of the base's {len(base.layers)}; the limit is {MOST_LAYERS}",
            hint=WHOLE_IMAGE_HINT,
        )
    _check_distinct(diff_ids, layers)
    config["created"] = _CREATED
    config["config"] = dict(settings)
    config["rootfs"] = {**config["rootfs"], "diff_ids": [*diff_ids, *(layer.diff_id for layer in layers)]}
    config["history"] = [*(config.get("history") or []), *map(_format_line, history)]
    return _with_manifest(base, config, layers)


def _check_distinct(below: list[str], layers: tuple[LayerSource, ...]) -> None:
    """Raises NeedsEngineError for a repeated or empty layer: GKE's image streaming refuses the whole image then."""
    seen = {EMPTY, *below}
    for layer in layers:
        if layer.diff_id in seen:
            raise NeedsEngineError(f"{layer.history}: the image already has this layer", hint=WHOLE_IMAGE_HINT)
        seen.add(layer.diff_id)


def as_oci(image: DirectImage) -> DirectImage:
    """Converts an image's manifest to OCI's format, because OCI layouts allow no other. This changes the digest."""
    if image.manifest_type == OCI_MANIFEST:
        return image
    document = json.loads(image.manifest)
    document["mediaType"] = OCI_MANIFEST
    document["config"]["mediaType"] = OCI_CONFIG
    document["layers"] = [_convert_layer(layer, docker=False) for layer in document["layers"]]
    manifest = dump_document(document)
    return replace(
        image,
        config_descriptor=replace(image.config_descriptor, media_type=OCI_CONFIG),
        manifest=manifest,
        manifest_type=OCI_MANIFEST,
        digest=sha256_digest(manifest),
    )


def _format_line(line: History) -> dict[str, Any]:
    document: dict[str, Any] = {"created": _CREATED, "created_by": line.text, "comment": HISTORY_COMMENT}
    return document if line.layer else {**document, "empty_layer": True}


def _with_manifest(base: Manifest, config: dict[str, Any], layers: tuple[LayerSource, ...]) -> DirectImage:
    added = [layer.descriptor for layer in layers]
    docker = base.media_type == DOCKER_MANIFEST and all(descriptor.media_type == OCI_LAYER_GZIP for descriptor in added)
    config_bytes = dump_document(config)
    config_type = DOCKER_CONFIG if docker else OCI_CONFIG
    config_descriptor = Descriptor(config_type, sha256_digest(config_bytes), len(config_bytes))
    raw_layers = [_convert_layer(dict(layer), docker=docker) for layer in base.document["layers"]]
    document = {
        **{key: value for key, value in base.document.items() if key not in {"annotations", "subject"}},
        "mediaType": DOCKER_MANIFEST if docker else OCI_MANIFEST,
        "config": config_descriptor.document(),
        "layers": raw_layers + [_convert_layer(descriptor.document(), docker=docker) for descriptor in added],
    }
    manifest = dump_document(document)
    if len(manifest) > LARGEST_MANIFEST:
        raise NeedsEngineError(
            f"the manifest has {len(manifest)} bytes; the limit is {LARGEST_MANIFEST}", hint=WHOLE_IMAGE_HINT
        )
    return DirectImage(
        base_layers=base.layers,
        layers=layers,
        config=config_bytes,
        config_descriptor=config_descriptor,
        manifest=manifest,
        manifest_type=document["mediaType"],
        digest=sha256_digest(manifest),
        diff_ids=tuple(config["rootfs"]["diff_ids"]),
    )


def _convert_layer(layer: dict[str, Any], *, docker: bool) -> dict[str, Any]:
    """Changes the media type in a layer's descriptor to OCI's or Docker's; the layer's bytes stay the same."""
    media_type = layer.get("mediaType", "")
    if any(word in media_type for word in _FOREIGN):
        raise NeedsEngineError(f"the base has a layer of type {media_type}, which must not be pushed")
    if docker:
        return {**layer, "mediaType": {OCI_LAYER_GZIP: DOCKER_LAYER_GZIP}.get(media_type, media_type)}
    oci_type = _TO_OCI.get(media_type, media_type)
    if oci_type not in {*_TO_OCI.values(), OCI_LAYER_ZSTD}:
        raise NeedsEngineError(f"the base has a layer of the unknown type {media_type}")
    return {**layer, "mediaType": oci_type}
