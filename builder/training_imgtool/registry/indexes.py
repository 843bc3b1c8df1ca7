"""Writes indexes: manifests that name an image per platform. No network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from training_imgtool.registry.manifests import DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, Manifest


def index_entry(manifest: Manifest, config: Mapping[str, Any]) -> dict[str, Any]:
    """An image's entry, with the platform of its config."""
    platform = {key: config[key] for key in ("architecture", "os", "variant") if config.get(key)}
    return {**manifest.descriptor.document(), "platform": platform}


def index_body(entries: Iterable[Mapping[str, Any]]) -> tuple[str, bytes]:
    """The media type of an index, of the family of its images, and its bytes."""
    rows = [dict(entry) for entry in entries]
    docker = all(row["mediaType"] == DOCKER_MANIFEST for row in rows)
    media_type = DOCKER_INDEX if docker else OCI_INDEX
    document = {"schemaVersion": 2, "mediaType": media_type, "manifests": rows}
    return media_type, json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
