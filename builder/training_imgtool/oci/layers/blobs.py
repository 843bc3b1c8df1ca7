"""Measures layers without storing them, compresses layers into the cache, and verifies layers that were made again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from training_imgtool.base.errors import VerificationError
from training_imgtool.oci.layers.codecs import Codec, join_pieces
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord
from training_imgtool.oci.layers.tar_writer import Sink
from training_imgtool.oci.registry.manifests import Descriptor

_BATCH = 1 << 16

Blocks = Callable[[Sink], Iterator[bytes]]


def measure(name: str, media_type: str, blocks: Blocks) -> LayerRecord:
    """Reads a layer once to get its digest, diff ID and size, and stores nothing."""
    plain, blob, size = hashlib.sha256(), hashlib.sha256(), 0
    for piece in join_pieces(blocks(plain.update), _BATCH):  # one call for many small blocks, outside Python's lock
        size += len(piece)
        blob.update(piece)
    return LayerRecord(
        name=name,
        blob=Descriptor(media_type, f"sha256:{blob.hexdigest()}", size),
        diff_id=f"sha256:{plain.hexdigest()}",
    )


def keep(name: str, cache: LayerCache, codec: Codec, tar: Iterable[bytes]) -> LayerRecord:
    """Compresses a whole tar archive into the cache."""
    plain = hashlib.sha256()
    digest, size = cache.keep_blob(codec.compress(tee(tar, plain.update)))
    return LayerRecord(
        name=name, blob=Descriptor(codec.media_type, digest, size), diff_id=f"sha256:{plain.hexdigest()}"
    )


def tee(blocks: Iterable[bytes], sink: Sink) -> Iterator[bytes]:
    """Yields the blocks of a tar archive in pieces, and also passes each piece to `sink`."""
    for piece in join_pieces(blocks):
        sink(piece)
        yield piece


def verify(blocks: Iterable[bytes], blob: Descriptor, forget: Callable[[], None]) -> Iterator[bytes]:
    """Yields the blocks; raises VerificationError at the end if their digest or size is not that of `blob`."""
    digest, size = hashlib.sha256(), 0
    for portion in join_pieces(blocks, _BATCH):
        digest.update(portion)
        size += len(portion)
        if size > blob.size:
            break
        yield portion
    if f"sha256:{digest.hexdigest()}" != blob.digest or size != blob.size:
        forget()
        raise remade_error(blob, "its record is wrong")


def remade_error(blob: Descriptor, why: str) -> VerificationError:
    """Returns the error for a layer that imgtool made again, but not with the bytes that the layer's record names."""
    return VerificationError(
        f"layer {blob.short}: imgtool made the layer again, but with other bytes: {why}",
        hint="imgtool deleted the layer's record; run the command again; if it fails again, add --no-cache",
    )
