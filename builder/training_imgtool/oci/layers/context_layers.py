"""A layer of files from the build context."""

from __future__ import annotations

from functools import partial

from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.layers import blobs
from training_imgtool.oci.layers.codecs import Codec, Compression, choose_codec
from training_imgtool.oci.layers.layer_cache import LayerCache, LayerRecord, Record, hash_fields
from training_imgtool.oci.layers.layers import LayerSource
from training_imgtool.oci.layers.tar_writer import VERSION, Contents, Item, write_tar
from training_imgtool.oci.layers.tarhead import Entry

OnceEach = SingleFlight[LayerSource]
"""The context layers of one run."""


def make_context_layer(
    contents: Contents, history: str, *, cache: LayerCache, compression: Compression, mtime: int, once: OnceEach
) -> LayerSource:
    """Makes the layer of `contents` in their order; once, even if several roles begin at once and share it.

    Args:
        contents: entries whose contents come from the context, each with the content's hash, which is empty for folders
            and links; together they are the cache's key.
        history: the instruction.
        cache: keeps the layer.
        compression: of the layer.
        mtime: of every entry.
        once: holds what this run made.

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
    """Lists all of an entry that its layer depends on."""
    return (entry.path, entry.kind, entry.mode, entry.size, entry.target, entry.uid, entry.gid)


def _make_layer(
    items: tuple[Item, ...], history: str, *, key: str, cache: LayerCache, mtime: int, codec: Codec
) -> LayerSource:
    def make() -> LayerRecord:
        return blobs.keep(history, cache, codec, write_tar(items, mtime))

    present = cache.find(key)
    record = present.layers[0] if present else make()
    if not present:
        cache.keep(key, Record((record,)))
    return LayerSource(
        descriptor=record.blob,
        diff_id=record.diff_id,
        history=history,
        open=partial(blobs.read, record.blob, cache, key, make),
    )
