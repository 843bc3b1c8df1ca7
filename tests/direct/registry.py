"""A docker-registry behind a proxy, clients for it, and images made up of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.registry.support import clients, machine
from tests.servers.fault_proxy import FaultProxy
from training_imgtool.core.reference import Repository, parse_repository
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor, sha256_digest


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

    def at(self, name: str) -> Repository:
        """A repository beside the bench's own."""
        return parse_repository(f"{self.proxy.host}/{self.repository.path.rpartition('/')[0]}/{name}")

    def again(self) -> Bench:
        """The same machine in another process: nothing but the disk is remembered."""
        self.proxy.clear()
        return Bench(self.proxy, self.folder, clients(machine(self.folder)), self.repository, [])

    def layer(self, data: bytes) -> LayerSource:
        """A layer whose content is `data`, which is no tar: nobody looks."""
        name = data[:20].decode()

        def read() -> object:
            self.opened.append(name)
            return iter((data,))

        blob = Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data))
        return LayerSource(descriptor=blob, diff_id=blob.digest, history=name, open=read)  # type: ignore[arg-type]

    def image(self, *layers: bytes, base: tuple[Descriptor, ...] = (), config: bytes = b"{}") -> DirectImage:
        """An image of such layers."""
        sources = tuple(map(self.layer, layers))
        descriptor = Descriptor(OCI_CONFIG, sha256_digest(config), len(config))
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor.document(),
            "layers": [one.document() for one in (*base, *(source.descriptor for source in sources))],
        }
        body = json.dumps(manifest).encode()
        return DirectImage(
            base_layers=base,
            layers=sources,
            config=config,
            config_descriptor=descriptor,
            manifest=body,
            manifest_type=OCI_MANIFEST,
            digest=sha256_digest(body),
            diff_ids=(),
        )

    def put(self, repository: Repository, data: bytes) -> Descriptor:
        """Puts a blob there and empties the log."""
        blob = Descriptor(OCI_LAYER_GZIP, sha256_digest(data), len(data))
        self.registries.at(repository).upload(repository, blob, partial(iter, (data,)))
        self.proxy.clear()
        return blob
