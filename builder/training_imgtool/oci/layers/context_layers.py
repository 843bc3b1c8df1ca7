"""Makes a layer of files from the build context."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.layers import blobs
from training_imgtool.oci.layers.codecs import Codec, Compression, choose_codec
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord, Record, hash_fields
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.layers.split import Contents
from training_imgtool.oci.layers.tar_writer import VERSION, Item, Sink, write_tar
from training_imgtool.oci.layers.tarhead import Entry

OnceEach = SingleFlight[LayerSource]
"""The context layers of one run."""
_KEPT_MOST = 8 << 20  # bytes: a layer of at most this size stays in memory until it is sent


def make_context_layer(
    contents: Contents, history: str, *, cache: LayerCache, compression: Compression, mtime: int, once: OnceEach
) -> LayerSource:
    """Makes the layer of `contents` in the given order. Several roles that need the same layer share one result.

    Args:
        contents: entries from the context, each with the hash of its content, which is empty for folders and links.
            The cache's key depends on all of them.
        history: the instruction.
        cache: keeps digest, diff ID and size, so that imgtool need not read unchanged files again.
        compression: the compression of the layer.
        mtime: the time of every entry.
        once: has the layers that this run made.

    Raises:
        InputError: a file changed since the context was scanned.
        LocalFileError: the cache cannot be written.
    """
    items = tuple(item for item, _ in contents)
    codec = choose_codec(compression)
    key = hash_fields(
        {
            "kind": "context",
            "version": VERSION,
            "codec": codec.name,
            "mtime": mtime,
            "entries": [[*_list_fields(item.entry), digest] for item, digest in contents],
        }
    )

    return once.do((key, history), partial(_make_layer, items, history, key=key, cache=cache, mtime=mtime, codec=codec))


def _list_fields(entry: Entry) -> tuple[str | int, ...]:
    """Lists the fields of an entry that decide the bytes of the entry's layer."""
    return (entry.path, entry.kind, entry.mode, entry.size, entry.target, entry.uid, entry.gid)


def _make_layer(
    items: tuple[Item, ...], history: str, *, key: str, cache: LayerCache, mtime: int, codec: Codec
) -> LayerSource:
    def blocks(sink: Sink | None = None) -> Iterator[bytes]:
        plain = write_tar(items, mtime)
        return codec.compress(blobs.tee(plain, sink) if sink else plain)

    present = cache.find(key)
    record, data = (present.layers[0], None) if present else _measure(history, codec.media_type, blocks)
    if not present:
        cache.keep(key, Record((record,)))
    again = partial(blobs.verify, blob=record.blob, forget=partial(cache.forget, key))
    return LayerSource(
        descriptor=record.blob,
        diff_id=record.diff_id,
        history=history,
        open=(lambda: iter((data,))) if data is not None else lambda: again(blocks()),
    )


def _measure(name: str, media_type: str, blocks: blobs.Blocks) -> tuple[LayerRecord, bytes | None]:
    """Makes the layer's record; also returns the layer's bytes if the layer is small."""
    held: list[bytes] = []
    size = 0

    def held_blocks(sink: Sink) -> Iterator[bytes]:
        nonlocal size
        for block in blocks(sink):
            size += len(block)
            if size <= _KEPT_MOST:
                held.append(block)
            else:
                held.clear()
            yield block

    record = blobs.measure(name, media_type, held_blocks)
    return record, b"".join(held) if size <= _KEPT_MOST else None
