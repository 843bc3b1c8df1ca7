"""A docker-registry behind a proxy, clients for it, and images made up of bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.oci.registry.support import clients, machine
from tests.servers.fault_proxy import FaultProxy
from training_imgtool.base.reference import Repository
from training_imgtool.oci.image.image import DirectImage
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.registry.connect import Registries
from training_imgtool.oci.registry.manifests import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor, sha256_digest


@dataclass
class Bench:
    """What a test of pushing needs; `opened` notes every layer whose bytes were asked for."""

    proxy: FaultProxy
    folder: Path
    registries: Registries
    repository: Repository
    opened: list[str]

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def again(self) -> Bench:
        """The same machine in another process: nothing but the disk is remembered."""
        self.proxy.clear()
        return Bench(self.proxy, self.folder, clients(machine(self.folder)), self.repository, [])

    def layer(self, data: bytes) -> LayerSource:
        """A layer whose content is `data`, which is no tar: nobody looks."""
        return layer_of(data, self.opened.append)

    def image(self, *layers: bytes, base: tuple[Descriptor, ...] = (), config: bytes = b"{}") -> DirectImage:
        """An image of such layers."""
        return _image(tuple(map(self.layer, layers)), base, config)


def layer_of(data: bytes, opened: Callable[[str], object] = lambda _: None) -> LayerSource:
    """A layer whose content is `data`; `opened` is told each time that the bytes are read."""
    name = data[:20].decode()

    def read() -> Iterator[bytes]:
        opened(name)
        return iter((data,))

    blob = Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data))
    return LayerSource(descriptor=blob, diff_id=blob.digest, history=name, open=read)


def image_of(*layers: bytes, base: tuple[LayerSource, ...] = (), config: bytes = b"{}") -> DirectImage:
    """An image of such layers, on those of another image."""
    return _image(tuple(map(layer_of, layers)), tuple(layer.descriptor for layer in base), config)


def _image(layers: tuple[LayerSource, ...], base: tuple[Descriptor, ...], config: bytes) -> DirectImage:
    descriptor = Descriptor(OCI_CONFIG, sha256_digest(config), len(config))
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor.document(),
        "layers": [blob.document() for blob in (*base, *(layer.descriptor for layer in layers))],
    }
    body = json.dumps(manifest).encode()
    return DirectImage(
        base_layers=base,
        layers=layers,
        config=config,
        config_descriptor=descriptor,
        manifest=body,
        manifest_type=OCI_MANIFEST,
        digest=sha256_digest(body),
        diff_ids=(),
    )
