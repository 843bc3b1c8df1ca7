"""The files of an image between two instructions: those of its base, and on top the copied ones.

imgtool reads the base only if an instruction depends on it. Paths are absolute. `resolve` follows links as engines do,
so the paths that it returns contain no links.
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
    """Wraps a source so that it is called only once, even by several threads."""
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
        """Whether there is a listing of the base, so that callers may ask for any path."""
        return len(self.sources) == 1

    def with_copied(self, nodes: Mapping[str, Node]) -> Files:
        """Adds the entries of a layer."""
        return replace(self, copied={**self.copied, **nodes})

    def with_layer(self, tree: Source) -> Files:
        """Adds a layer on top, whose tree is computed only if an instruction depends on it."""
        return replace(self, sources=tuple(call_once(partial(_merge, source, tree)) for source in self.sources))

    def node(self, path: str) -> Node | None:
        """Finds the entry at a resolved path; raises NeedsEngineError if no tree of the base knows the path."""
        if path in self.copied:
            return self.copied[path]
        if any(f"{path}/".startswith(f"{top}/") for top in OF_THE_ENGINE):
            raise NeedsEngineError(f"{path}: engines put something of their own there")
        above = posixpath.dirname(path)
        if above in self.copied and self.copied[above].kind is not Kind.FOLDER:
            return None
        closed = "/"
        for source in self.sources:
            try:
                return find_node(source(), path)
            except ClosedFolderError as error:
                closed = str(error)
        raise NeedsEngineError(f"{path}: what the base has in {closed} is too much to list")

    def is_folder(self, path: str) -> bool:
        """Returns whether a path leads to a folder, also through links."""
        node = self.node(self.resolve(path))
        return node is not None and node.kind is Kind.FOLDER

    def resolve(self, path: str) -> str:
        """Follows the links in a path; parts that do not exist stay as they are.

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
                raise NeedsEngineError(f"{path}: {inner} is a file")
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
    """Yields the folders above an absolute path, without `/`, the nearest last."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        yield "/" + "/".join(parts[:count])
