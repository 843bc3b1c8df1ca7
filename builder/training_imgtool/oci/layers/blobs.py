"""Layers as bytes: compressed into the cache, read from there, made again if the cache has lost them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from training_imgtool.base.errors import VerificationError
from training_imgtool.oci.layers.codecs import Codec, join_pieces
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord
from training_imgtool.oci.layers.tar_writer import Sink
from training_imgtool.oci.registry.manifests import Descriptor


def keep(name: str, cache: LayerCache, codec: Codec, tar: Iterable[bytes]) -> LayerRecord:
    """Compresses a whole tar into the cache."""
    plain = hashlib.sha256()
    digest, size = cache.keep_blob(codec.compress(tee(tar, plain.update)))
    return LayerRecord(
        name=name, blob=Descriptor(codec.media_type, digest, size), diff_id=f"sha256:{plain.hexdigest()}"
    )


def tee(blocks: Iterable[bytes], sink: Sink) -> Iterator[bytes]:
    """Passes blocks of a tar on in pieces and shows each to the sink."""
    for piece in join_pieces(blocks):
        sink(piece)
        yield piece


def read(blob: Descriptor, cache: LayerCache, key: str, make: Callable[[], LayerRecord]) -> Iterator[bytes]:
    """Reads a layer from the cache, and makes it again if it is not there; raises VerificationError for other bytes."""
    if not cache.has_blob(blob) and make().blob != blob:
        cache.forget(key)
        raise remade_error(blob, "a library here differs from the one that made it first")
    return cache.read_blob(blob)


def remade_error(blob: Descriptor, why: str) -> VerificationError:
    """Returns the error for a layer that was made again and came out as other bytes than its record says."""
    return VerificationError(
        f"layer {blob.short}: made again, it is not the same: {why}",
        hint="imgtool dropped the record; run the command again, with --no-cache if that does not help",
    )
