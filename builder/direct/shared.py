"""Layer records in the registry: what making a layer taught one machine, another takes over without the wheels.

A record is the one layer of a small artifact (OCI image specification 1.1, "Guidance for an artifact") under
the tag `layers-KEY`, carried inline in its descriptor's `data`, so reading one is one GET. A record is a claim,
not a proof: the blob it names must be in the repository, or it is made here and must come out as the record says.
"""

from __future__ import annotations

import base64
import binascii
import json

from builder.direct.layer_cache import RECORD_TYPE
from builder.errors import ImgtoolError
from builder.reference import Repository, Tag
from builder.registry.client import Registry
from builder.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest

_EMPTY = b"{}"


class RegistryRecords:
    """Records in one repository. A registry that has none, or takes none, is no error."""

    def __init__(self, registry: Registry, repository: Repository) -> None:
        self._registry = registry
        self._repository = repository

    def get(self, key: str) -> bytes | None:
        """The record of `key`, or None."""
        try:
            manifest = self._registry.manifest(self._tag(key))
            layers = manifest.document.get("layers")
            data = layers[0].get("data") if isinstance(layers, list) and layers else None
            return base64.b64decode(data, validate=True) if isinstance(data, str) else None
        except (ImgtoolError, ValueError, AttributeError, binascii.Error):
            return None

    def put(self, key: str, record: bytes) -> None:
        """Leaves a record for others."""
        blob = Descriptor(RECORD_TYPE, sha256_digest(record), len(record))
        empty = Descriptor(OCI_EMPTY, sha256_digest(_EMPTY), len(_EMPTY))
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": RECORD_TYPE,
            "config": empty.document(),
            "layers": [{**blob.document(), "data": base64.b64encode(record).decode()}],
        }
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        try:
            self._registry.upload(self._repository, empty, lambda: iter((_EMPTY,)))
            self._registry.upload(self._repository, blob, lambda: iter((record,)))
            self._registry.put_manifest(self._tag(key), OCI_MANIFEST, body)
        except ImgtoolError:
            return

    def _tag(self, key: str) -> Tag:
        return self._repository.tag(f"layers-{key[:32]}")
