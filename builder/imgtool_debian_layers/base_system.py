"""A base image's Debian system, read from its layers: every path, and the texts that apt and dpkg read."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

from imgtool_debian_layers.errors import NeedsAptError

_MOST_TEXT = 64 << 20  # bytes of all texts of one layer
_LARGEST_TEXT = 8 << 20
_MOST_LINKS = 40  # Linux' MAXSYMLINKS
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_TEXTS = re.compile(
    r"/var/lib/dpkg/(?:status|diversions|statoverride|arch|triggers/.+|alternatives/.+)|/var/lib/apt/extended_states"
    r"|/etc/apt/.+|/etc/dpkg/.+|/usr/share/keyrings/.+|/etc/(?:passwd|group)|/etc/ld\.so\.(?:cache|conf|conf\.d/.+)"
    r"|/usr/lib/os-release"
)


@dataclass(frozen=True, slots=True)
class Node:
    """What is at a path.

    `kind` is `d` (folder), `l` (symbolic link), `h` (hard link), `w` (whiteout) or `f` (anything else).
    """

    kind: str
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    target: str = ""


class LayerFile(NamedTuple):
    """An entry of a layer, with its path in the archive and a function that reads its content."""

    path: str
    node: Node
    size: int
    read: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class BaseSystem:
    """A base's files: `nodes` by absolute path, and `texts`, the contents of files that apt and dpkg read, by path."""

    nodes: Mapping[str, Node]
    texts: Mapping[str, bytes] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """Returns the text of the file at a path; empty if `texts` does not contain the path."""
        return self.texts.get(path, b"").decode("utf-8", "surrogateescape")

    def below(self, folder: str) -> tuple[str, ...]:
        """Lists, sorted, the paths in `texts` that are below a folder."""
        return tuple(sorted(path for path in self.texts if path.startswith(f"{folder}/")))

    def document(self) -> dict[str, Any]:
        """Returns the system as data for a JSON document."""
        return {
            "nodes": {path: astuple(node) for path, node in self.nodes.items()},
            "texts": {path: base64.b64encode(data).decode() for path, data in self.texts.items()},
        }


def read_document(document: Mapping[str, Any]) -> BaseSystem:
    """Reads what `BaseSystem.document` returned."""
    return BaseSystem(
        {path: Node(*node) for path, node in document["nodes"].items()},
        {path: base64.b64decode(text) for path, text in document["texts"].items()},
    )


@dataclass(slots=True)
class _Layer:
    nodes: dict[str, Node] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)


def read_base(layers: Iterable[Iterable[LayerFile]]) -> BaseSystem:
    """Reads the entries of a base's layers, lowest layer first; raises NeedsAptError for an unreadable database."""
    nodes, texts = {"/": Node("d", 0o755)}, dict[str, bytes]()
    for files in layers:
        _merge(nodes, texts, _read_layer(files))
    return BaseSystem(nodes, texts)


def resolve(nodes: Mapping[str, Node], path: str) -> str:
    """Replaces the links in an absolute path by their targets, except for the last part of the path.

    Raises NeedsAptError for a loop of links.
    """
    left = _split(path)
    at, links = "/", 0
    while left:
        name = left.pop()
        if name in {".", ".."}:
            at = posixpath.dirname(at) if name == ".." else at
            continue
        inner = posixpath.join(at, name)
        node = nodes.get(inner)
        if node is None or node.kind != "l" or not left:
            at = inner
            continue
        links += 1
        if links > _MOST_LINKS:
            raise NeedsAptError(f"{path}: too many links")
        left += _split(node.target)
        at = "/" if node.target.startswith("/") else at
    return at


def _split(path: str) -> list[str]:
    """Returns the parts of a path, the last part first."""
    return [name for name in reversed(path.split("/")) if name]


def _read_layer(files: Iterable[LayerFile]) -> _Layer:
    layer, total = _Layer(), 0
    for file in files:
        path = _clean(file.path)
        above, name = posixpath.split(path)
        if name == _OPAQUE:
            layer.emptied.add(above)
        elif name.startswith(_WHITEOUT):
            layer.removed.add(posixpath.join(above, name.removeprefix(_WHITEOUT)))
        else:
            layer.nodes[path] = file.node
            if _TEXTS.fullmatch(path) and (data := _read_text(layer, file)) is not None:
                total += len(data)
                if total > _MOST_TEXT:
                    raise NeedsAptError("the base's package database is too large to read")
                layer.texts[path] = data
    return layer


def _read_text(layer: _Layer, file: LayerFile) -> bytes | None:
    """Reads a file's text; None if this is not a file, or if the file is too large for a text of apt or dpkg."""
    if file.node.kind == "f":
        return file.read() if file.size <= _LARGEST_TEXT else None
    if file.node.kind == "h":
        target = _clean(file.node.target)
        if target not in layer.texts:
            raise NeedsAptError(f"{_clean(file.path)} of the base is a hard link to {target}")
        return layer.texts[target]
    return None


def _clean(path: str) -> str:
    """Makes a path absolute, because engines unpack layers into the image's root."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def _merge(nodes: dict[str, Node], texts: dict[str, bytes], layer: _Layer) -> None:
    replaced = {
        path
        for path, node in layer.nodes.items()
        if path in nodes and (node.kind == "d") is not (nodes[path].kind == "d")
    }
    tops = tuple(f"{path}/" for path in layer.removed | layer.emptied | replaced)
    for path in [path for path in nodes if path in layer.removed or path.startswith(tops)]:
        del nodes[path]
        texts.pop(path, None)
    for path, node in layer.nodes.items():
        nodes[path] = node
        texts.pop(path, None)
    texts.update(layer.texts)
