"""Reads an image from the registry: manifest, config, and the layers that are worth their bytes. It runs nothing.

It reads layers above the base as a stream, and does not fetch large layers of the base; the report names what it did
not look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import RegistryRefusedError
from training_imgtool.core.progress import Progress, Step
from training_imgtool.core.reference import Digest
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.verify.compare_bytecode import Contents
from training_imgtool.verify.facts import Layer, Listing
from training_imgtool.verify.layers import read_layer

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries
    from training_imgtool.registry.manifests import Descriptor

LARGEST_BASE_LAYER = 100_000_000  # compressed bytes: a slim system and its Python, not CUDA
LARGEST_BESIDE_CONTAINER = 64_000_000  # where a container shows the files, only smaller layers are read one by one
_PIECE = 16 << 10  # bytes
LEAST_INFLATED = 1 << 30  # bytes that a layer may always inflate to
MOST_INFLATED = 100  # times its compressed size that it may inflate to; text reaches 20, zeros reach 1032


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One image in a registry, as far as manifest and config tell."""

    digest: Digest
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    descriptors: tuple[Descriptor, ...]


@dataclass(slots=True)
class LayerReader:
    """Reads layers, each digest once, however many roles share it."""

    registries: Registries
    progress: Progress
    contents: Contents
    listings: dict[tuple[str, bool], Listing] = field(default_factory=dict)

    def read(self, stored: Stored, *, beside_container: bool, subject: str) -> dict[int, Listing]:
        """Returns the listings of the layers that are worth their bytes, by number."""
        pairs = enumerate(zip(stored.layers, stored.descriptors, strict=True))
        chosen = {
            number: pair for number, pair in pairs if _is_worth_reading(pair[0], beside_container=beside_container)
        }
        new = {
            descriptor.digest: descriptor.size
            for layer, descriptor in chosen.values()
            if (descriptor.digest, layer.own) not in self.listings
        }
        if new:
            self.progress(Step(subject, f"reading {len(new)} layers, {sum(new.values()) / 1e6:.1f} MB"))
        contents = None if beside_container else self.contents
        return {number: self._list(stored.digest, *pair, subject, contents) for number, pair in chosen.items()}

    def _list(
        self, image: Digest, layer: Layer, descriptor: Descriptor, subject: str, contents: Contents | None
    ) -> Listing:
        key = (descriptor.digest, layer.own)
        if key not in self.listings:
            repository = image.repository
            blocks = self.registries.at(repository).blob(
                repository, descriptor, subject=subject, progress=self.progress
            )
            most = max(LEAST_INFLATED, descriptor.size * MOST_INFLATED)
            archive = decompress(_split_pieces(blocks))
            self.listings[key] = listing = read_layer(archive, hashed=layer.own, most=most, contents=contents)
            if listing.diff_id:
                for _ in blocks:  # bytes behind the end of the stream belong to the digest too
                    pass
        return self.listings[key]


def _split_pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces so small that no gzip inflates one to more than about 16 MiB (1032 times)."""
    for block in blocks:
        for start in range(0, len(block), _PIECE):
            yield block[start : start + _PIECE]


def _is_worth_reading(layer: Layer, *, beside_container: bool) -> bool:
    if beside_container:
        return layer.own and layer.size <= LARGEST_BESIDE_CONTAINER
    return layer.own or layer.size <= LARGEST_BASE_LAYER


def read_image(digest: Digest, platform: str, base: Mapping[str, Any] | None, registries: Registries) -> Stored:
    """Manifest and config of an image: two small requests. Raises what the registry's client raises."""
    from training_imgtool.direct.image.image import read_config

    registry = registries.at(digest.repository)
    manifest = registry.manifest(digest, platform)
    config = read_config(registry.read(digest.repository, manifest.config))
    descriptors = manifest.layers
    return Stored(
        digest=digest,
        config=config,
        layers=list_layers(config, base, [(descriptor.digest, descriptor.size) for descriptor in descriptors]),
        descriptors=descriptors,
    )


def list_layers(
    config: Mapping[str, Any], base: Mapping[str, Any] | None, sizes: list[tuple[str, int]]
) -> tuple[Layer, ...]:
    """The layers with the instructions that made them; those that the base has too are not the image's own."""
    texts = [str(line.get("created_by", "")) for line in config.get("history") or [] if not line.get("empty_layer")]
    texts += [""] * (len(sizes) - len(texts))
    below = len(find_shared_layers(config, base))
    return tuple(
        Layer(digest=digest, size=size, own=number >= below, history=texts[number])
        for number, (digest, size) in enumerate(sizes)
    )


def find_shared_layers(config: Mapping[str, Any], base: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The diff IDs that an image and its base begin with in common."""
    ours, theirs = _read_diff_ids(config), _read_diff_ids(base or {})
    count = next(
        (n for n, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their),
        min(len(ours), len(theirs)),
    )
    return ours[:count]


def _read_diff_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    rootfs = config.get("rootfs") or {}
    return tuple(str(diff_id) for diff_id in rootfs.get("diff_ids") or [])


def read_base_config(base: Digest, platform: str, registries: Registries) -> Mapping[str, Any] | None:
    """The config of the locked base; None when no registry has it any more."""
    from training_imgtool.direct.image.image import read_config

    registry = registries.at(base.repository)
    try:
        manifest = registry.manifest(base, platform)
        return read_config(registry.read(base.repository, manifest.config))
    except RegistryRefusedError:
        return None
