"""What a base image's layers say about its Debian system: every path, and the texts that apt and dpkg read.

The layers are read once, as a stream; the cache keeps the result under their digests.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from training_imgtool.core.errors import NeedsEngineError, VerificationError
from training_imgtool.direct.layers.codecs import decompress
from training_imgtool.direct.layers.layer_cache import LayerCache, Record, hash_fields
from training_imgtool.direct.layers.tar_reader import FILE, FOLDER, HARD_LINK, LINK, Member, TarReader
from training_imgtool.direct.links import follow_links
from training_imgtool.registry.manifests import Descriptor

_VERSION = 2  # of what is read
_FIELD = "debian"
_MOST_TEXT = 64 << 20  # bytes of all texts, and of the listing
_LARGEST_TEXT = 8 << 20
_KINDS = {FOLDER: "d", LINK: "l"}
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_TEXTS = re.compile(
    r"/var/lib/dpkg/(?:status|diversions|statoverride|arch|triggers/.+|alternatives/.+"
    r"|info/.+\.(?:list|conffiles|triggers|preinst|postinst|prerm|postrm))"
    r"|/var/lib/apt/extended_states|/etc/apt/.+|/etc/dpkg/.+|/usr/share/keyrings/.+"
    r"|/etc/(?:passwd|group|shadow|gshadow|subuid|subgid)|/etc/ld\.so\.(?:cache|conf|conf\.d/.+)"
    r"|/etc/ca-certificates\.conf|/usr/lib/os-release"
)

Read = Callable[[Descriptor], Iterator[bytes]]
"""Gives a layer's blocks, verified when the last one is taken."""


@dataclass(frozen=True, slots=True)
class Node:
    """A path of the base: `kind` is `d`, `f` (anything else) or `l`."""

    kind: str
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    target: str = ""


_ROOT = Node("d", 0o755)


@dataclass(frozen=True, slots=True)
class BaseSystem:
    """A base's files: every path with its node, and the texts by their path (resolved, absolute)."""

    nodes: Mapping[str, Node]
    texts: Mapping[str, bytes] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """Returns a text; empty when the base has none at that path."""
        return self.texts.get(path, b"").decode("utf-8", "surrogateescape")

    def below(self, folder: str) -> tuple[str, ...]:
        """Lists the paths of the texts below a folder, sorted."""
        return tuple(sorted(path for path in self.texts if path.startswith(f"{folder}/")))


@dataclass(slots=True)
class _Layer:
    nodes: dict[str, Node] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)


def read_base(layers: tuple[Descriptor, ...], read: Read, cache: LayerCache) -> BaseSystem:
    """Reads the layers of a base, lowest first, or what the cache has of them.

    Raises VerificationError for a damaged layer, NeedsEngineError for one in zstd without its library, and what
    reading a blob raises.
    """
    key = hash_fields({"kind": "debian-base", "version": _VERSION, "layers": [layer.digest for layer in layers]})
    present = _find(cache, key)
    if present is not None:
        return present
    nodes: dict[str, Node] = {"/": _ROOT}
    texts: dict[str, bytes] = {}
    for layer in layers:
        try:
            _merge(nodes, texts, _read_layer(decompress(read(layer))))
        except VerificationError as error:
            raise VerificationError(f"layer {layer.short} of the base: {error.message}", hint=error.hint) from error
    system = BaseSystem(nodes, texts)
    cache.keep(key, Record((), {_FIELD: _dump(system)}))
    return system


def resolve(nodes: Mapping[str, Node], path: str) -> str:
    """Follows the links of an absolute path's folders; its last part stays as it is.

    Raises NeedsEngineError for a loop.
    """

    def read_link(inner: str, continues: bool) -> str | None:
        node = nodes.get(inner)
        return node.target if continues and node is not None and node.kind == "l" else None

    return follow_links(path, read_link)


def _read_layer(blocks: Iterable[bytes]) -> _Layer:
    layer, total = _Layer(), 0
    reader = TarReader(blocks)
    for member in reader.members():
        path = _clean(member.path)
        above, name = posixpath.split(path)
        if name == _OPAQUE:
            layer.emptied.add(above)
        elif name.startswith(_WHITEOUT):
            layer.removed.add(posixpath.join(above, name.removeprefix(_WHITEOUT)))
        else:
            kind = _KINDS.get(member.kind, "f")
            mode, uid, gid = member.attributes.mode, member.attributes.uid, member.attributes.gid
            layer.nodes[path] = Node(kind, mode, uid, gid, member.target if kind == "l" else "")
            if _TEXTS.fullmatch(path) and (data := _text(layer, reader, member)) is not None:
                total += len(data)
                if total > _MOST_TEXT:
                    raise NeedsEngineError("the base's package database is too large to read")
                layer.texts[path] = data
    return layer


def _text(layer: _Layer, reader: TarReader, member: Member) -> bytes | None:
    """Reads what a file says; None for what is no file, or is too large to be one of apt's or dpkg's."""
    if member.kind == FILE:
        return b"".join(reader.content()) if member.size <= _LARGEST_TEXT else None
    if member.kind == HARD_LINK:
        target = _clean(member.target)
        if target not in layer.texts:
            raise NeedsEngineError(f"{_clean(member.path)} of the base is a hard link to {target}")
        return layer.texts[target]
    return None


def _clean(path: str) -> str:
    """Makes a path absolute; engines unpack with the image's root as theirs."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def _merge(nodes: dict[str, Node], texts: dict[str, bytes], layer: _Layer) -> None:
    replaced = {
        path
        for path, node in layer.nodes.items()
        if path in nodes and (node.kind == "d") is not (nodes[path].kind == "d")
    }
    tops = tuple(f"{path}/" for path in layer.removed | layer.emptied | replaced)
    for path in (
        [path for path in nodes if path in layer.removed or path.startswith(tops)] if tops or layer.removed else ()
    ):
        del nodes[path]
        texts.pop(path, None)
    for path, node in layer.nodes.items():
        nodes[path] = node
        texts.pop(path, None)
    texts.update(layer.texts)


def _dump(system: BaseSystem) -> str:
    document = {
        "nodes": {path: [node.kind, node.mode, node.uid, node.gid, node.target] for path, node in system.nodes.items()},
        "texts": {path: base64.b64encode(data).decode() for path, data in system.texts.items()},
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return base64.b64encode(zlib.compress(text)).decode()


def _find(cache: LayerCache, key: str) -> BaseSystem | None:
    record = cache.find(key)
    text = (record.claims or {}).get(_FIELD) if record else None
    if text is None:
        return None
    try:
        plain = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 2 * _MOST_TEXT)
        document = json.loads(plain.decode("utf-8", "surrogatepass"))
        return BaseSystem(
            {path: Node(*node) for path, node in document["nodes"].items()},
            {path: base64.b64decode(data) for path, data in document["texts"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, zlib.error):
        cache.forget(key)
        return None
