"""Describes files as a tree with what COPY and WORKDIR depend on: modes and owners of folders, links, paths of files.

A tree comes from one layer's archive (`layers.tar_reader`), from several layers (`merge`), or from data (`base_files`).
A tree contains neither the contents nor the modes of files, because the result of COPY does not depend on them. imgtool
closes a folder that would make the tree too large: the tree then contains the folder, but nothing below the folder.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from training_imgtool.base.errors import VerificationError

MOST_NODES = 20_000  # in one tree: about 100 kB when it is compressed
_MOST_TEXT = 16 << 20  # bytes of a tree as text
_OPEN_DEPTH = 2  # folders down to this depth keep all their names
_DEEPEST = 64  # levels of folders
_LARGE = (1000, 200, 40, 8, 0)  # nodes below a folder that may be closed; the first number that suffices


class Kind(StrEnum):
    """The kind of a node. `dump` writes these values."""

    FOLDER = "d"
    FILE = "f"  # also a device, or anything else that is neither a folder nor a link
    LINK = "l"
    WHITEOUT = "w"  # deletes the entry that the layers below have at this path
    UNKNOWN = "u"  # this tree does not know; another one has to


@dataclass(frozen=True, slots=True)
class Attributes:
    """A folder's mode and owner."""

    mode: int = 0o755
    uid: int = 0
    gid: int = 0


PLAIN = Attributes()


@dataclass(slots=True)
class Node:
    """One path.

    Attributes:
        kind: the node's kind.
        attributes: a folder's mode and owner; None if engines give it different ones.
        target: the target of a link.
        closed: whether the folder's contents are not listed.
        opaque: whether the folder hides its contents in the layers below.
        children: the contents of a folder, by name.
    """

    kind: Kind
    attributes: Attributes | None = PLAIN
    target: str = ""
    closed: bool = False
    opaque: bool = False
    children: dict[str, Node] = field(default_factory=dict)


def make_folder(
    attributes: Attributes | None = PLAIN, *, closed: bool = False, children: Mapping[str, Node] | None = None
) -> Node:
    """Makes a folder."""
    return Node(Kind.FOLDER, attributes, closed=closed, children=dict(children or {}))


FILE, WHITEOUT, UNKNOWN = Node(Kind.FILE), Node(Kind.WHITEOUT), Node(Kind.UNKNOWN)
_SINGLE = {node.kind.value: node for node in (FILE, WHITEOUT, UNKNOWN)}


class ClosedFolderError(Exception):
    """The tree does not list the entries at or below the path that is this exception's argument."""


def find_node(root: Node, path: str) -> Node | None:
    """Finds the node at an absolute path without following links; None if there is none.

    Raises ClosedFolderError if the path is in a closed folder.
    """
    node, at = root, ""
    for name in path.strip("/").split("/") if path != "/" else ():
        if node.kind is not Kind.FOLDER:
            return None
        if name not in node.children:
            if node.closed:
                raise ClosedFolderError(at or "/")
            return None
        node, at = node.children[name], f"{at}/{name}"
        if node.kind is Kind.UNKNOWN:
            raise ClosedFolderError(at)
    return None if node.kind is Kind.WHITEOUT else node


def merge(lower: Node | None, upper: Node) -> Node:
    """Puts a layer's tree on top of the tree of the layers below it, as the OCI layer specification defines."""
    if upper.kind is not Kind.FOLDER or lower is None or lower.kind is not Kind.FOLDER:
        unsure = lower is not None and lower.kind is Kind.UNKNOWN and upper.kind is Kind.FOLDER
        return UNKNOWN if unsure else upper
    attributes = upper.attributes
    if attributes is None and lower.attributes == PLAIN:
        attributes = PLAIN  # all engines unpack an implied folder alike
    if upper.opaque:
        return replace(upper, attributes=attributes)
    children = dict(lower.children)
    for name, child in upper.children.items():
        merged = merge(children.get(name), child)
        children[name] = merged
    return Node(Kind.FOLDER, attributes, closed=lower.closed or upper.closed, children=children)


def prune(root: Node) -> Node:
    """Closes the largest folders of the tree until at most MOST_NODES nodes are left."""
    for large in _LARGE:
        for depth in range(_OPEN_DEPTH, -1, -1) if large == 0 else (_OPEN_DEPTH,):
            left = _close_large(root, large, depth)
            if _count(left) <= MOST_NODES:
                return left
    return make_folder(root.attributes, closed=True)


def _close_large(node: Node, large: int, depth: int, at: int = 0) -> Node:
    if node.kind is not Kind.FOLDER or not node.children:
        return node
    if at > depth and _count(node) > large:
        return Node(Kind.FOLDER, node.attributes, closed=True, opaque=node.opaque)
    children = {name: _close_large(child, large, depth, at + 1) for name, child in node.children.items()}
    return replace(node, children=children)


def _count(node: Node) -> int:
    total, waiting = 0, [node]
    while waiting:
        current = waiting.pop()
        total += len(current.children)
        waiting += current.children.values()
    return total


class TreeMaker:
    """Makes a tree from one layer's entries, added in the layer's order. Paths are relative and normalized."""

    def __init__(self) -> None:
        self.root = make_folder(None)

    def add(self, path: str, node: Node) -> None:
        """Adds an entry, which replaces an earlier entry at the same path; but two folders are merged."""
        above = self._make_parent(path)
        if above is None:
            return
        name = path.rpartition("/")[2]
        present = above.children.get(name) if path else self.root
        if present is not None and Kind.WHITEOUT in {node.kind, present.kind} and node.kind is not present.kind:
            above.children[name] = make_folder(None, closed=True)
        elif node.kind is Kind.FOLDER and present is not None and present.kind is Kind.FOLDER:
            present.attributes = node.attributes
        else:
            above.children[name] = node

    def make_opaque(self, path: str) -> None:
        """Marks a folder as opaque, which hides the contents that the folder has in the layers below."""
        above = self._make_parent(f"{path}/x" if path else "x")
        if above is not None:
            above.opaque = True

    def _make_parent(self, path: str) -> Node | None:
        """Returns the parent folder of `path`, and makes missing folders; returns None if a folder above is closed.

        Engines treat an entry below a link, a file or a whiteout of the same layer differently. imgtool puts a closed
        folder in place of such a link, file or whiteout.
        """
        node = self.root
        for depth, name in enumerate(path.split("/")[:-1]):
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = make_folder(None, closed=depth >= _DEEPEST)
            elif child.kind is not Kind.FOLDER:
                child = node.children[name] = make_folder(None, closed=True)
            if child.closed:
                return None
            node = child
        return node


def dump(root: Node) -> str:
    """Formats the tree as text."""
    return json.dumps(_make_document(root), separators=(",", ":"))


def parse(text: str) -> Node:
    """Reads a tree that `dump` wrote; raises VerificationError for any other text."""
    try:
        root = _parse_node(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise VerificationError(f"a stored tree of a base's files is damaged: {error}") from error
    if root.kind is not Kind.FOLDER:
        raise VerificationError("a stored tree of a base's files does not begin with a folder")
    return root


def pack(root: Node) -> str:
    """Compresses the tree into text for a record of the `LayerCache`."""
    return base64.b64encode(zlib.compress(dump(root).encode("ascii"))).decode()


def unpack(text: str) -> Node:
    """Reads a tree that `pack` wrote; raises VerificationError for any other text."""
    try:
        packed = base64.b64decode(text, validate=True)
        return parse(zlib.decompressobj().decompress(packed, _MOST_TEXT).decode("ascii"))
    except (ValueError, zlib.error) as error:
        raise VerificationError(f"a stored tree of a base's files is damaged: {error}") from error


def _make_document(node: Node) -> Any:
    if node.kind is Kind.LINK:
        return [node.kind.value, node.target]
    if node.kind is not Kind.FOLDER:
        return node.kind.value
    own = [node.attributes.mode, node.attributes.uid, node.attributes.gid] if node.attributes else None
    flags = f"{node.kind.value}{'c' if node.closed else ''}{'o' if node.opaque else ''}"
    return [flags, own, {name: _make_document(child) for name, child in sorted(node.children.items())}]


def _parse_node(document: Any) -> Node:
    if isinstance(document, str):
        return _SINGLE[document]
    kind, *rest = document
    if kind == Kind.LINK.value:
        return Node(Kind.LINK, target=_require_text(rest[0]))
    own, children = rest
    if kind[:1] != Kind.FOLDER.value or not isinstance(children, Mapping):
        raise ValueError(f"unknown kind {kind!r}")
    attributes = Attributes(*map(int, own)) if own is not None else None
    nodes = {name: _parse_node(child) for name, child in children.items()}
    return Node(Kind.FOLDER, attributes, closed="c" in kind, opaque="o" in kind, children=nodes)


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a link's target is not text")
    return value
