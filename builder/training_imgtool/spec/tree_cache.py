"""The node trees of specs that were right, kept between runs: PyYAML takes 9 ms to load and to read one again.

What is kept was accepted whole, so all that `yamlfile.reader` and `yamlfile.tree` refuse was looked for then, and
nothing in a tree depends on the file's name. Every check of the values is made all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_imgtool import __version__
from training_imgtool.core.json_cache import MAX_BYTES, read_kept, write_kept
from training_imgtool.yamlfile.tree import Items, Node, Position, Scalar, Table

# Another version may refuse what this one takes. To be raised when a spec's bytes give another tree within a version.
_FORM = f"tree of a spec, form 1, {__version__}\n".encode()


class SpecMemo:
    """The place in the cache of the tree that the bytes of one spec give."""

    def __init__(self, cache: Path, data: bytes) -> None:
        self._path = cache / "specs" / f"{hashlib.sha256(_FORM + data).hexdigest()}.json"

    def tree(self) -> Table | None:
        """The tree, None when none is kept or the file is not as `keep` leaves it."""
        try:
            found = _node(read_kept(self._path))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, Table) else None

    def keep(self, root: Table) -> None:
        """Keeps the tree of a spec without errors, for the user alone; nothing happens when that is not possible."""
        # Aliases share nodes, a file cannot: a mebibyte of YAML may be ten gigabytes there.
        if sum(map(len, _texts(root))) <= MAX_BYTES:
            write_kept(self._path, _plain(root), mode=0o600)


def _node(raw: Any) -> Node:
    """The node that `_plain` made `raw` of; raises ValueError when it did not."""
    match raw:
        case [int(line), int(column), str(text), bool(quoted)]:
            return Scalar(Position(line, column), text, quoted)
        case [int(line), int(column), list(items)]:
            return Items(Position(line, column), tuple(map(_node, items)))
        case [int(line), int(column), list(keys), list(values)]:
            return Table(Position(line, column), tuple(zip(map(_key, keys), map(_node, values), strict=True)))
    raise ValueError("not a node")


def _key(raw: Any) -> Scalar:
    node = _node(raw)
    if not isinstance(node, Scalar):
        raise ValueError("not a key")  # noqa: TRY004 - what `_node` raises
    return node


def _plain(node: Node) -> list[Any]:
    """The node as JSON has it: its place, then text and quoting, or elements, or keys and values."""
    if isinstance(node, Scalar):
        return [*node.at, node.text, node.quoted]
    if isinstance(node, Items):
        return [*node.at, [_plain(item) for item in node.items]]
    return [*node.at, [_plain(key) for key, _ in node.entries], [_plain(value) for _, value in node.entries]]


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Items):
        for item in node.items:
            yield from _texts(item)
    else:
        for key, value in node.entries:
            yield key.text
            yield from _texts(value)
