"""A layer's archive as a tree of its paths, without keeping its contents; what no engine unpacks is refused."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from training_imgtool.core.errors import NeedsEngineError, VerificationError
from training_imgtool.direct.layers.tar_reader import FOLDER, HARD_LINK, LINK, Member, TarReader
from training_imgtool.direct.tree import FILE, WHITEOUT, Kind, Node, TreeMaker, make_folder, prune

_MOST_ENTRIES = 1_000_000  # in one layer; the largest images that people train in have a third of it
_MOST_BYTES = 64 << 30  # of archive
_LONGEST_PATH = 4096  # Linux' PATH_MAX
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


def read_layer_tree(blocks: Iterable[bytes]) -> Node:
    """The tree of one layer, its largest folders closed. Messages call the layer "it": the caller names it.

    Args:
        blocks: the archive, uncompressed.

    Raises:
        VerificationError: it is no archive, or is damaged.
        NeedsEngineError: it has too many entries to list.
    """
    maker, links = TreeMaker(), dict[str, Node]()
    for number, member in enumerate(TarReader(_limit(blocks)).members()):
        if number >= _MOST_ENTRIES:
            raise NeedsEngineError(f"it has more than {_MOST_ENTRIES} entries")
        _add(maker, member, links)
    return prune(maker.root)


def _limit(blocks: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for block in blocks:
        total += len(block)
        if total > _MOST_BYTES:
            raise VerificationError(f"it has more than {_MOST_BYTES >> 30} GiB")
        yield block


def _add(maker: TreeMaker, member: Member, links: dict[str, Node]) -> None:
    """Adds an entry; `links` has the symbolic links so far, which a hard link may be another name of."""
    path = _clean(member.path)
    above, _, name = path.rpartition("/")
    if name == _OPAQUE:
        maker.make_opaque(above)
    elif name.startswith(_WHITEOUT):
        if not name.startswith(f"{_WHITEOUT}{_WHITEOUT}"):  # aufs' own bookkeeping
            maker.add(posixpath.join(above, name.removeprefix(_WHITEOUT)), WHITEOUT)
    elif member.kind == FOLDER:
        maker.add(path, make_folder(member.attributes))
    elif path:
        node = FILE
        if member.kind == LINK:
            node = links[path] = Node(Kind.LINK, target=member.target)
        elif member.kind == HARD_LINK:
            node = links.get(_clean(member.target), FILE)
        maker.add(path, node)


def _clean(path: str) -> str:
    if len(path) > _LONGEST_PATH or "\0" in path:
        raise VerificationError(f"it has a path that no system takes: {path[:80]!r}…")
    return posixpath.normpath(f"/{path}").lstrip("/")  # engines unpack with the image's root as theirs
