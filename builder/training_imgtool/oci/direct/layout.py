"""Decides the paths that a recipe's files get on an image, and the folders that the layer of these files must list.

The rules are those of BuildKit's COPY (tonistiigi/fsutil `copy/copy.go`). COPY puts the contents of a folder into the
destination. A destination that exists keeps its owner and mode. Each folder below the destination gets owner root and
mode 755, even if the folder exists. A layer lists each folder that it makes, and each parent folder that has another
owner or mode, because Docker's overlay driver gives owner root and mode 755 to parent folders that a layer omits.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from training_imgtool.base.context.entries import Entry as Source
from training_imgtool.base.context.entries import Kind as SourceKind
from training_imgtool.base.context.entries import blocks
from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.model.recipe.recipe import Copy
from training_imgtool.oci.direct.files import Files, list_parents
from training_imgtool.oci.direct.tree import FILE, PLAIN, Attributes, Kind, Node, make_folder
from training_imgtool.oci.layers.layers import make_folder_item
from training_imgtool.oci.layers.split import Contents
from training_imgtool.oci.layers.tar_writer import Item
from training_imgtool.oci.layers.tarhead import Entry
from training_imgtool.oci.layers.tarhead import Kind as EntryKind


@dataclass(frozen=True, slots=True)
class FileLayer:
    """The files of a layer with the hashes of their contents (`contents`), and the node at each path of the layer."""

    contents: Contents
    nodes: Mapping[str, Node]


def lay_out(copies: Iterable[Copy], files: Files) -> FileLayer:
    """Decides where the files of `copies` go on an image that already contains `files`.

    Raises NeedsEngineError if BuildKit would not replace what is at a file's path, or if engines would make different
    images.
    """
    layer = _Layer(files)
    for copy in copies:
        if copy.is_folder:
            layer.put_folder(copy)
        else:
            layer.put_file(copy)
    return layer.result()


class _Layer:
    """A layer in progress."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._placed: dict[str, Source | Attributes] = {}
        self._nodes: dict[str, Node] = {}
        self._new: set[str] = set()  # folders that the image does not have: they contain only the layer's own entries

    def put_folder(self, copy: Copy) -> None:
        """Puts the contents of a folder into the copy's target."""
        top = self._files.resolve(copy.target)
        self._pass_through(f"{top}/x")
        for entry in copy.entries:
            self._put(posixpath.join(top, entry.path), entry)

    def put_file(self, copy: Copy) -> None:
        """Puts a file at the copy's target."""
        (entry,) = copy.entries
        above, name = posixpath.split(copy.target)
        path = posixpath.join(self._files.resolve(above), name)
        node = self._node(path)
        if node is not None and node.kind is Kind.LINK:
            raise NeedsEngineError(f"{path} is a link in the base")
        self._pass_through(path)
        self._put(path, entry)

    def result(self) -> FileLayer:
        """Returns the layer, with its files sorted by path."""
        ordered = ((path, self._placed[path]) for path in sorted(self._placed))
        return FileLayer(tuple(_make_content(path, placed) for path, placed in ordered), self._nodes)

    def _node(self, path: str) -> Node | None:
        """Finds the entry at a path without links: in this layer, or else in the image below."""
        if (node := self._nodes.get(path)) is not None or posixpath.dirname(path) in self._new:
            return node
        return self._files.node(path)

    def _put(self, path: str, source: Source) -> None:
        """Puts an entry at `path`. Engines differ if a file replaces a folder, or the reverse."""
        node, is_folder = self._node(path), source.kind is SourceKind.DIRECTORY
        if node is not None and (node.kind is Kind.FOLDER) is not is_folder:
            what = "a file or a link" if is_folder else "a folder"
            raise NeedsEngineError(f"{path} is {what} in the base, and engines do not replace it in the same way")
        if is_folder:
            self._set_folder(path, PLAIN, is_new=node is None)
            return
        self._placed[path] = source
        is_link = source.kind is SourceKind.SYMLINK
        self._nodes[path] = Node(Kind.LINK, target=source.target or "") if is_link else FILE

    def _pass_through(self, path: str) -> None:
        """Adds the missing parent folders of a path, and existing ones that root does not own with mode 755."""
        for above in list_parents(path):
            if above in self._placed:
                continue
            node = self._node(above)
            if node is None:
                self._set_folder(above, PLAIN, is_new=True)
            elif node.kind is not Kind.FOLDER:
                raise NeedsEngineError(f"{above} is a file in the base, not a folder")
            elif node.attributes is None:
                raise NeedsEngineError(f"engines give the base's folder {above} different modes")
            elif node.attributes != PLAIN:
                self._set_folder(above, node.attributes, is_new=False)

    def _set_folder(self, path: str, attributes: Attributes, *, is_new: bool) -> None:
        above = self._node(posixpath.dirname(path)) if is_new else None
        if above is not None and above.attributes is not None and above.attributes.mode & stat.S_ISGID:
            raise NeedsEngineError(f"{path} would be made in a folder that has the set-group-ID bit")
        if is_new:
            self._new.add(path)
        self._placed[path] = attributes
        self._nodes[path] = make_folder(attributes)


def _make_content(path: str, placed: Source | Attributes) -> tuple[Item, str]:
    if isinstance(placed, Attributes):
        return make_folder_item(path.strip("/"), placed.mode, placed.uid, placed.gid), ""
    is_file = placed.kind is SourceKind.FILE
    entry = Entry(
        path=path.strip("/"),
        kind=EntryKind.FILE if is_file else EntryKind.LINK,
        mode=placed.mode,
        size=placed.size if is_file else 0,
        target=placed.target or "",
    )
    return Item(entry, blocks=partial(blocks, placed) if is_file else None), placed.sha256 or ""
