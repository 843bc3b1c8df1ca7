"""Describes the files of an image between two instructions: the base's files, and the copied files on top.

imgtool reads the base's layers only if an instruction depends on the base's files. Paths are absolute. `resolve`
follows links as engines do, so the paths that it returns contain no links.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from training_imgtool.base.errors import NeedsEngineError
from training_imgtool.base.threads import SingleFlight
from training_imgtool.oci.direct.tree import ClosedFolderError, Kind, Node, find_node, make_folder, merge

_MOST_LINKS = 40  # Linux' MAXSYMLINKS
OF_THE_ENGINE = (  # engines mount or make these in containers
    *("/dev", "/proc", "/sys", "/.dockerenv"),
    *("/etc/hostname", "/etc/hosts", "/etc/mtab", "/etc/resolv.conf"),
)

Source = Callable[[], Node]
"""Returns a tree of the base; called at most once per use, and only if the tree is needed."""


def call_once(source: Source) -> Source:
    """Returns a source that calls `source` only once, even if several threads call the returned one."""
    flight: SingleFlight[Node] = SingleFlight()
    return lambda: flight.do(None, source)


def _merge(lower: Source, upper: Source) -> Node:
    return merge(lower(), upper())


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an image.

    Attributes:
        sources: trees of the base, the cheapest first. imgtool asks the next tree if one does not know a path.
        copied: the entries of the layers on top of the base, without folders that are only parents of an entry.
    """

    sources: tuple[Source, ...]
    copied: Mapping[str, Node] = field(default_factory=dict)

    @property
    def is_listed(self) -> bool:
        """Whether the base has only one tree, so that looking up a path never reads a second tree."""
        return len(self.sources) == 1

    def with_copied(self, nodes: Mapping[str, Node]) -> Files:
        """Returns these files with the entries of a layer on top."""
        return replace(self, copied={**self.copied, **nodes})

    def with_layer(self, tree: Source) -> Files:
        """Returns these files with a layer on top; `tree` is called only if an instruction depends on it."""
        return replace(self, sources=tuple(call_once(partial(_merge, source, tree)) for source in self.sources))

    def node(self, path: str) -> Node | None:
        """Finds the entry at a path without links; raises NeedsEngineError if no tree of the base lists the path."""
        if path in self.copied:
            return self.copied[path]
        if any(f"{path}/".startswith(f"{top}/") for top in OF_THE_ENGINE):
            raise NeedsEngineError(f"{path}: engines put a file or a mount of their own there")
        above = posixpath.dirname(path)
        if above in self.copied and self.copied[above].kind is not Kind.FOLDER:
            return None
        closed = "/"
        for source in self.sources:
            try:
                return find_node(source(), path)
            except ClosedFolderError as error:
                closed = str(error)
        raise NeedsEngineError(f"{path}: the base has too many files in {closed} for imgtool to list")

    def is_folder(self, path: str) -> bool:
        """Returns whether there is a folder at a path, directly or through links."""
        node = self.node(self.resolve(path))
        return node is not None and node.kind is Kind.FOLDER

    def resolve(self, path: str) -> str:
        """Replaces the links in a path by their targets, and keeps the parts of the path that do not exist.

        Raises NeedsEngineError for a loop of links, and for a path below a file.
        """
        left = [name for name in reversed(path.split("/")) if name]
        at, links = "/", 0
        while left:
            name = left.pop()
            if name in {".", ".."}:
                at = posixpath.dirname(at) if name == ".." else at
                continue
            inner = posixpath.join(at, name)
            node = self.node(inner)
            if node is not None and node.kind is Kind.FILE and left:
                raise NeedsEngineError(f"{path}: {inner} is a file, not a folder")
            if node is None or node.kind is not Kind.LINK:
                at = inner
                continue
            links += 1
            if links > _MOST_LINKS:
                raise NeedsEngineError(f"{path}: too many links")
            left += [part for part in reversed(node.target.split("/")) if part]
            at = "/" if node.target.startswith("/") else at
        return at


ASSUMED = Files((make_folder,))
"""Represents a base that imgtool does not read, as a plain folder."""


def list_parents(path: str) -> Iterator[str]:
    """Yields the parent folders of an absolute path from the top down, except `/`."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        yield "/" + "/".join(parts[:count])
