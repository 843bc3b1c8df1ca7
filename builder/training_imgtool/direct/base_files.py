"""What a base image has where: from data for the matrix' own bases, else read once from its layers.

The cache on this machine has the tree of each layer under the layer's digest. The tree of all layers together is a
record beside the layer records in the registry, so that another machine makes one request instead of reading the base.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from training_imgtool.core.errors import NeedsEngineError, UsageError, VerificationError
from training_imgtool.core.threads import SingleFlight
from training_imgtool.direct import base_facts, tree
from training_imgtool.direct.files import Files, Source
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.direct.layers.layer_cache import LayerCache, Record, hash_fields
from training_imgtool.direct.layers.tar_reader import read_layer_tree
from training_imgtool.direct.tree import Node
from training_imgtool.registry.manifests import Descriptor

_VERSION = 1  # of how trees are made
_FIELD = "files"
_MOST_TEXT = 16 << 20  # bytes of a tree as text

Read = Callable[[Descriptor], Iterator[bytes]]
"""Gives a layer's blocks, verified when the last one is taken."""
DiffIds = Callable[[], tuple[str, ...]]
Layers = Callable[[], tuple[Descriptor, ...]]
"""Gives layers, lowest first; called only when they must be read."""


@dataclass(frozen=True, slots=True)
class BaseReader:
    """Reads what bases have where.

    Attributes:
        shared: keeps the trees of whole bases, here and where other machines see them.
        own: keeps the trees of single layers, here only.
        place: where shared records come from; what they say is used for images of that place only.
    """

    shared: LayerCache
    own: LayerCache
    place: str

    def files(self, name: str | None, layers: Layers, read: Read, diff_ids: DiffIds = tuple) -> Files:
        """What a base has where.

        A layer that is read must have the content that the config names; engines refuse a base where it has not.

        Args:
            name: its canonical REPOSITORY:TAG, or None.
            layers: its layers.
            read: opens one of them.
            diff_ids: the digests of their uncompressed contents, by the base's config.
        """
        facts = base_facts.find_matrix_tree(name) if name else None
        listed = _call_once(lambda: self._read_tree(layers(), read, diff_ids))
        return Files((lambda: facts, listed) if facts else (listed,))

    def files_on_top(self, base: Files, layers: Layers, read: Read) -> Files:
        """What an image has where that an engine made by adding layers to a base."""
        added = _call_once(lambda: self._read_tree(layers(), read))
        return Files(tuple(_call_once(partial(_merge, source, added)) for source in base.sources))

    def _read_tree(self, layers: tuple[Descriptor, ...], read: Read, diff_ids: DiffIds = tuple) -> Node:
        """The tree of layers together; raises what reading them raises."""
        fields = {"kind": "base", "version": _VERSION, "layers": [layer.digest for layer in layers]}
        key, of_place = hash_fields(fields), hash_fields({**fields, "place": self.place})
        present = _find(self.own, key) or _find(self.own, of_place)
        if present is not None:
            return present
        present = _find(self.shared, key)
        if present is not None:
            _keep(self.own, of_place, present)
            return present
        contents = dict(zip((layer.digest for layer in layers), diff_ids(), strict=False))
        trees = (self._read_layer(layer, read, contents.get(layer.digest)) for layer in layers)
        whole = tree.prune(functools.reduce(tree.merge, trees, tree.make_folder()))
        _keep(self.shared, key, whole)
        return whole

    def _read_layer(self, layer: Descriptor, read: Read, diff_id: str | None) -> Node:
        key = hash_fields({"kind": "files", "version": _VERSION, "layer": layer.digest})
        present = _find(self.own, key)
        if present is None:
            try:
                present = read_layer_tree(_check_blocks(decompress(read(layer)), diff_id))
            except UsageError as error:  # zstd without its library
                raise NeedsEngineError(f"layer {layer.short} of the base: {error.message}", hint=error.hint) from error
            except VerificationError as error:
                raise VerificationError(
                    f"layer {layer.short} of the base: {error.message}",
                    hint=error.hint or "no engine unpacks such a layer: name another base, or push this one again",
                ) from error
            _keep(self.own, key, present)
        return present


def _check_blocks(blocks: Iterable[bytes], diff_id: str | None) -> Iterator[bytes]:
    """The same blocks; raises VerificationError at the end where they are not the content that the config names."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
        if block:  # an empty one would end the reading
            yield block
    content = f"sha256:{digest.hexdigest()}"
    if diff_id not in {None, content}:
        raise VerificationError(f"its content is {content[:19]}, and the base's config says {str(diff_id)[:19]}")


def _call_once(source: Source) -> Source:
    """The same source, called once however many threads want it."""
    flight: SingleFlight[Node] = SingleFlight()
    return lambda: flight.do(None, source)


def _merge(lower: Source, upper: Source) -> Node:
    return tree.merge(lower(), upper())


def _find(cache: LayerCache, key: str) -> Node | None:
    record = cache.find(key)
    claims: Mapping[str, str] = record.claims or {} if record else {}
    if _FIELD not in claims:
        return None
    try:
        engine = zlib.decompressobj()
        text = engine.decompress(base64.b64decode(claims[_FIELD], validate=True), _MOST_TEXT)
        return tree.parse(text.decode("ascii"))
    except (ValueError, binascii.Error, zlib.error, VerificationError):
        cache.forget(key)
        return None


def _keep(cache: LayerCache, key: str, node: Node) -> None:
    text = base64.b64encode(zlib.compress(tree.dump(node).encode("ascii"))).decode()
    cache.keep(key, Record((), {_FIELD: text}))
