"""Stores built wheels in the repository of the images, and reads wheels from there by their sha256.

Other people may also put wheels into the repository. Each wheel is an artifact (OCI image specification 1.1, "Guidance
for an artifact") whose only layer is the wheel's file. Another machine downloads the wheel instead of building the
wheel, and compares the file's hash with the lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.reference import Repository, Tag
from training_imgtool.model.lock import Wheel
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_EMPTY, OCI_MANIFEST, Descriptor, sha256_digest

_WHEEL_TYPE = "application/vnd.dev.imgtool.wheel"
_TITLE = "org.opencontainers.image.title"
_EMPTY = b"{}"
_BLOCK = 1 << 20


class StoredWheels:
    """Reads and writes the built wheels of one repository."""

    def __init__(self, registries: Registries, repository: Repository) -> None:
        self._store = repository
        self._registry = registries.at(self._store)

    def read(self, wheel: Wheel) -> Iterator[bytes] | None:
        """Returns the wheel's bytes, verified at their end; None if the registry lacks the wheel or does not answer."""
        try:
            layers = self._registry.manifest(self._tag(wheel)).layers
        except ImgtoolError:
            return None
        blob = _describe(wheel)
        return self._registry.blob(self._store, blob) if [layer.digest for layer in layers] == [blob.digest] else None

    def keep(self, wheel: Wheel, path: Path) -> None:
        """Puts the wheel into the registry unless it is already there; raises the same errors as `Registry.upload`."""
        if self._registry.head(self._tag(wheel)) is not None:
            return
        empty = Descriptor(OCI_EMPTY, sha256_digest(_EMPTY), len(_EMPTY))
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": _WHEEL_TYPE,
            "config": empty.document(),
            "layers": [{**_describe(wheel).document(), "annotations": {_TITLE: wheel.file}}],
        }
        self._registry.upload(self._store, empty, lambda: iter((_EMPTY,)))
        self._registry.upload(self._store, _describe(wheel), partial(_read_blocks, path))
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        self._registry.put_manifest(self._tag(wheel), OCI_MANIFEST, body)

    def _tag(self, wheel: Wheel) -> Tag:
        return self._store.tag(f"wheel-{wheel.sha256[:32]}")


def _describe(wheel: Wheel) -> Descriptor:
    return Descriptor(_WHEEL_TYPE, f"sha256:{wheel.sha256}", wheel.size)


def _read_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block
