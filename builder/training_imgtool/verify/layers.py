"""Reads a layer's archive as it comes, and lays listings over each other as a container's file system does.

Whiteouts, and what replaces what, are those of the OCI image specification 1.1, "Layer Filesystem Changeset". What
makes an engine refuse a layer is what Docker 20.10 refuses: a path twice, and a hard link to no earlier entry.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.direct.layers.tar_reader import FILE, FOLDER, HARD_LINK, LINK, Member, TarReader
from training_imgtool.verify.facts import Fields, Listing, Node, Tree
from training_imgtool.verify.interesting_paths import (
    LARGEST_TEXT,
    classify,
    describe,
    settle,
    sum_folders,
    wants_look,
)

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_IMPLIED = Node(FOLDER, None)
_MOST_ENTRIES = 1_000_000
_MOST_TEXT = 256 << 20  # bytes of metadata and sources in one layer


@dataclass(slots=True)
class _Content:
    """What the entries of one archive amount to."""

    hashed: bool
    items: list[dict[str, Any]] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    implied: dict[str, Node] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    text: int = 0

    def imply(self, folder: str) -> None:
        """Adds the folder that an entry lies in, be it a whiteout, and those above it: engines make them."""
        while folder and folder not in self.implied:
            self.implied[folder] = _IMPLIED
            folder = folder.rpartition("/")[0]

    def remove(self, path: str) -> None:
        """Notes a whiteout; what it names may come behind it in the same archive, not before."""
        if path in self.nodes or path in self.implied:
            self.faults.append(f"/{path} is in it, and is removed behind that: some engines keep it")
        self.removed.append(path)

    def listing(self, diff_id: str | None) -> Listing:
        return Listing(
            items=tuple(settle(self.items)),
            folders=self.folders,
            removed=tuple(self.removed),
            emptied=tuple(self.emptied),
            nodes={**self.implied, **self.nodes},
            hashed=self.hashed,
            diff_id=diff_id,
            faults=tuple(self.faults),
        )


def read_layer(blocks: Iterator[bytes], *, hashed: bool, most: int) -> Listing:
    """Reads an uncompressed archive to its end; a damaged one has no diff ID, and a fault that says why.

    Args:
        blocks: the archive's bytes.
        hashed: whether to hash every file.
        most: bytes after which reading stops with a fault.
    """
    digest, content = hashlib.sha256(), _Content(hashed)
    reader = TarReader(_counted(blocks, most, digest))
    try:
        for member in reader.members():
            _add(content, reader, member)
        return content.listing(f"sha256:{digest.hexdigest()}")
    except VerificationError as error:
        content.faults.append(error.message)
    return content.listing(None)


def _counted(blocks: Iterator[bytes], most: int, digest: Hash) -> Iterator[bytes]:
    """Yields the same blocks, hashed; raises VerificationError after `most` bytes."""
    size = 0
    for block in blocks:
        size += len(block)
        if size > most:
            raise VerificationError(f"it inflates to more than {most / 1e6:.0f} MB, so the rest is not read")
        digest.update(block)
        yield block


def _add(content: _Content, reader: TarReader, member: Member) -> None:
    path = posixpath.normpath(f"/{member.path}").lstrip("/")
    if len(content.nodes) == _MOST_ENTRIES:
        raise VerificationError(f"it has more than {_MOST_ENTRIES:,} entries, so the rest is not read")
    if path in content.nodes:
        content.faults.append(f"/{path} is in it twice")
    folder, _, name = path.rpartition("/")
    content.imply(folder)
    if name == _OPAQUE:
        content.emptied.append(folder)
        return
    if name.startswith(_WHITEOUT):
        content.remove(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
        return
    if member.extended and member.kind == FOLDER and content.hashed:
        content.faults.append(f"/{path} has extended attributes, which can hide what is below it")
    content.nodes[path] = Node(member.kind, member.attributes)
    if member.kind == FOLDER:
        return
    content.folders[folder] = content.folders.get(folder, 0) + member.size
    target = posixpath.normpath(f"/{member.target}").lstrip("/")
    if member.kind == HARD_LINK:
        other = content.nodes.get(target)
        content.nodes[path] = other or Node(HARD_LINK, None, f"a hard link to /{target}")
        if other is None:
            content.faults.append(f"/{path} is a hard link to {member.target}, which the layer does not have before it")
    if member.kind in {FILE, LINK, HARD_LINK}:
        _read_file(content, reader, member, path)


def _read_file(content: _Content, reader: TarReader, member: Member, path: str) -> None:
    kind = classify(path)
    link = member.target if member.kind != FILE else None
    interesting = kind is not None or (link is None and wants_look(path, member.size))
    start = b""
    if member.kind == FILE and (interesting or content.hashed):
        start, digest = _read(reader, LARGEST_TEXT if interesting else 0)
        content.nodes[path] = Node(FILE, member.attributes, digest + " with extended attributes" * member.extended)
    elif member.kind == LINK:
        content.nodes[path] = Node(LINK, member.attributes, member.target)
    if not interesting:
        return
    fields = describe(path, kind, member.size, lambda most: start[:most], link)
    if fields:
        content.text += len(fields.get("text", ""))
        if content.text > _MOST_TEXT:
            raise VerificationError(f"it has more than {_MOST_TEXT >> 20} MiB of metadata, so the rest is not read")
        content.items.append(fields)


def _read(reader: TarReader, most: int) -> tuple[bytes, str]:
    """Reads the present member: its first `most` bytes, and its SHA-256."""
    digest, start = hashlib.sha256(), bytearray()
    for block in reader.content():
        digest.update(block)
        start += block[: max(0, most - len(start))]
    return bytes(start), digest.hexdigest()


def overlay(listings: Mapping[int, Listing], count: int) -> Tree:
    """Lays the listings of an image's layers over each other.

    Args:
        listings: those that were read, by number.
        count: how many layers the image has.
    """
    items: dict[str, Fields] = {}
    nodes: dict[str, Node] = {}
    removed: dict[str, int] = {}
    folders: dict[str, int] = {}
    for number, listing in sorted(listings.items()):
        if listing.hashed:
            taken = (path for path in (*listing.removed, *listing.emptied) if not _holds(nodes, path))
            removed |= dict.fromkeys(taken, number)
        for path in [path for path in items if _is_hidden(path, listing)]:
            del items[path]
        for path in [path for path in nodes if _is_hidden(path, listing)]:
            if path not in listing.nodes or listing.nodes[path].kind != FOLDER or nodes[path].kind != FOLDER:
                del nodes[path]
        items |= {fields["path"]: {**fields, "layer": number} for fields in listing.items}
        if listing.hashed:
            nodes |= {
                path: replace(node, layer=number)
                for path, node in listing.nodes.items()
                if path not in nodes or node.attributes is not None or node.kind != FOLDER
            }
        for folder, size in listing.folders.items():
            folders[folder] = folders.get(folder, 0) + size
    return Tree(
        items=items, folders=sum_folders(folders), complete=len(listings) == count, nodes=nodes, removed=removed
    )


def _holds(nodes: Mapping[str, Node], path: str) -> bool:
    return path in nodes and nodes[path].attributes is not None


def _is_hidden(path: str, above: Listing) -> bool:
    """Returns whether a layer above replaces or removes a file, or has no folder where its folder was."""
    if path in above.nodes or path in above.removed or "" in above.emptied:
        return True
    folder = path
    while folder := folder.rpartition("/")[0]:
        node = above.nodes.get(folder)
        if (node is not None and node.kind != FOLDER) or folder in above.removed or folder in above.emptied:
            return True
    return False
