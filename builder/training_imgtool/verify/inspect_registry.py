"""Reads an image from the registry: manifest, config, and the layers that are worth their bytes. It runs nothing.

It reads layers above the base as a stream, and does not fetch large layers of the base; the report names what it did
not look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import ImgtoolError, RegistryRefusedError, VerificationError
from training_imgtool.core.progress import Planned, Progress, Step, Transfer
from training_imgtool.core.reference import Digest, Repository
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.registry.manifests import platform_of
from training_imgtool.verify.facts import Layer, Listing
from training_imgtool.verify.layers import read_layer

if TYPE_CHECKING:
    from training_imgtool.direct.layers.layers import LayerSource
    from training_imgtool.registry.connect import Registries
    from training_imgtool.registry.manifests import Descriptor

LARGEST_BASE_LAYER = 100_000_000  # compressed bytes: a slim system and its Python, not CUDA
_PIECE = 16 << 10  # bytes
LEAST_INFLATED = 1 << 30  # bytes that a layer may always inflate to
MOST_INFLATED = 100  # times its compressed size that it may inflate to; text reaches 20, zeros reach 1032


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One image in a registry, as far as manifest and config tell; `of_base` are the digests of the base's layers."""

    digest: Digest
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    descriptors: tuple[Descriptor, ...]
    of_base: frozenset[str]


@dataclass(slots=True)
class LayerReader:
    """Reads layers, each digest once, however many roles share it."""

    registries: Registries
    progress: Progress
    listings: dict[tuple[str, bool], Listing] = field(default_factory=dict)

    def read(self, stored: Stored, *, subject: str) -> dict[int, Listing]:
        """Returns the listings of the layers that are worth their bytes, by number; reads those that it lacks."""
        pairs = enumerate(zip(stored.layers, stored.descriptors, strict=True))
        chosen = {
            number: (layer, descriptor)
            for number, (layer, descriptor) in pairs
            if layer.own or layer.size <= LARGEST_BASE_LAYER or layer.digest not in stored.of_base
        }
        new = {
            descriptor.digest: descriptor.size
            for layer, descriptor in chosen.values()
            if (descriptor.digest, layer.own) not in self.listings
        }
        if new:
            self.progress(Step(subject, f"reading {len(new)} {'layer' if len(new) == 1 else 'layers'}"))
            self.progress(Planned(subject, sum(new.values())))
        return {
            number: self._list(stored.digest.repository, descriptor, subject, own=layer.own)
            for number, (layer, descriptor) in chosen.items()
        }

    def read_source(self, source: LayerSource, stored: Stored | None, *, subject: str) -> Listing:
        """Returns the listing of a layer that this machine makes.

        Where it cannot make the bytes, it reads those of an image that has the layer: their digest is the same.
        """
        key = (source.descriptor.digest, True)
        if key not in self.listings:
            try:
                listing = _list_archive(self._count(source, subject), source.descriptor.size, hashed=True)
            except ImgtoolError:
                if stored is None or source.descriptor.digest not in {item.digest for item in stored.descriptors}:
                    raise
                return self._list(stored.digest.repository, source.descriptor, subject, own=True)
            self.listings[key] = listing
        return self.listings[key]

    def _count(self, source: LayerSource, subject: str) -> Iterator[bytes]:
        """Passes a layer's bytes on, and says how many of them there were."""
        done, descriptor = 0, source.descriptor
        for block in source.open():
            yield block
            done += len(block)
            self.progress(Transfer(subject, descriptor.short, done, descriptor.size))

    def find(self, diff_id: str) -> Listing | None:
        """Returns the listing of a layer above a base that was read or made before, by its diff ID."""
        return next((item for (_, own), item in self.listings.items() if own and item.diff_id == diff_id), None)

    def _list(self, repository: Repository, descriptor: Descriptor, subject: str, *, own: bool) -> Listing:
        key = (descriptor.digest, own)
        if key not in self.listings:
            blocks = self.registries.at(repository).blob(
                repository, descriptor, subject=subject, progress=self.progress
            )
            self.listings[key] = _list_archive(blocks, descriptor.size, hashed=own)
        return self.listings[key]


def _list_archive(blocks: Iterator[bytes], size: int, *, hashed: bool) -> Listing:
    archive = decompress(_split_pieces(blocks))
    listing = read_layer(archive, hashed=hashed, most=max(LEAST_INFLATED, size * MOST_INFLATED))
    if listing.diff_id:
        for _ in blocks:  # bytes behind the end of the stream belong to the digest too
            pass
    return listing


def _split_pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the same bytes in pieces so small that no gzip inflates one to more than about 16 MiB (1032 times)."""
    for block in blocks:
        for start in range(0, len(block), _PIECE):
            yield block[start : start + _PIECE]


def read_image(digest: Digest, platform: str, base: BaseImage, registries: Registries) -> Stored:
    """Reads manifest and config of an image: two small requests.

    Raises VerificationError if other images hide behind the digest, and what the registry's client raises.
    """
    from training_imgtool.direct.image.image import read_config

    registry = registries.at(digest.repository)
    manifest = registry.manifest(digest)
    if manifest.is_index:
        named = {one.digest for entry, one in manifest.entries if platform_of(entry)}
        manifest = registry.manifest(digest, platform)
        if named != {manifest.digest}:
            raise VerificationError(f"{digest} is an index that names other images than that for {platform}")
    config = read_config(registry.read(digest.repository, manifest.config))
    descriptors = manifest.layers
    return Stored(
        digest=digest,
        config=config,
        layers=list_layers(config, base.config, [(descriptor.digest, descriptor.size) for descriptor in descriptors]),
        descriptors=descriptors,
        of_base=base.layers,
    )


def list_layers(
    config: Mapping[str, Any], base: Mapping[str, Any] | None, sizes: list[tuple[str, int]]
) -> tuple[Layer, ...]:
    """Lists the layers with the instructions that made them; those that the base has too are not the image's own."""
    texts = [str(line.get("created_by", "")) for line in config.get("history") or [] if not line.get("empty_layer")]
    texts += [""] * (len(sizes) - len(texts))
    below = len(find_shared_layers(config, base))
    return tuple(
        Layer(digest=digest, size=size, own=number >= below, history=texts[number])
        for number, (digest, size) in enumerate(sizes)
    )


def find_shared_layers(config: Mapping[str, Any], base: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Finds the diff IDs that an image and its base begin with in common."""
    ours, theirs = _read_diff_ids(config), _read_diff_ids(base or {})
    count = next(
        (n for n, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their),
        min(len(ours), len(theirs)),
    )
    return ours[:count]


def _read_diff_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    rootfs = config.get("rootfs") or {}
    return tuple(str(diff_id) for diff_id in rootfs.get("diff_ids") or [])


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The locked base: its config, None when no registry has it any more, and the digests of its layers."""

    config: Mapping[str, Any] | None = None
    layers: frozenset[str] = frozenset()


def read_base(base: Digest, platform: str, registries: Registries) -> BaseImage:
    """Reads manifest and config of the locked base."""
    from training_imgtool.direct.image.image import read_config

    registry = registries.at(base.repository)
    try:
        manifest = registry.manifest(base, platform)
        config = read_config(registry.read(base.repository, manifest.config))
    except RegistryRefusedError:
        return BaseImage()
    return BaseImage(config, frozenset(layer.digest for layer in manifest.layers))
