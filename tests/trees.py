"""An image's file tree out of its layers' archives, by the rules of the OCI layer specification.

Written for the comparison alone: nothing of the package is used, so that it cannot share a mistake with it.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Path:
    """One path: type, mode, owner, and a link's target or a file's hash."""

    kind: str
    mode: int
    owner: tuple[int, int]
    content: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.mode:o} {self.owner[0]}:{self.owner[1]} {self.content[:12]}".strip()


Tree = dict[str, Path]


def tree_of(layers: Iterable[bytes]) -> Tree:
    """The tree of uncompressed archives, lowest first."""
    tree: Tree = {}
    for layer in layers:
        _apply(tree, layer)
    return tree


def _apply(tree: Tree, layer: bytes) -> None:
    added: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        members = [(posixpath.normpath(one.name.lstrip("/")), one) for one in archive]
        for path, _ in members:
            folder, name = posixpath.split(path)
            if name == ".wh..wh..opq":
                _remove(tree, folder, itself=False)
            elif name.startswith(".wh."):
                _remove(tree, posixpath.join(folder, name[4:]))
        for path, one in members:
            if path != "." and not posixpath.basename(path).startswith(".wh."):
                _imply(added, posixpath.dirname(path))
                added[path] = _path(archive, one, added)
    for path, node in added.items():
        if path in tree and (node.kind != "folder" or tree[path].kind != "folder"):
            _remove(tree, path)
        tree[path] = node


def _imply(added: Tree, folder: str) -> None:
    """A folder that an archive only implies is new to Docker's overlay driver: mode 755 and owner 0."""
    while folder and folder not in added:
        added[folder] = Path("folder", 0o755, (0, 0))
        folder = posixpath.dirname(folder)


def _path(archive: tarfile.TarFile, one: tarfile.TarInfo, added: Tree) -> Path:
    owner = (one.uid, one.gid)
    if one.isdir():
        return Path("folder", one.mode & 0o7777, owner)
    if one.issym():
        return Path("link", 0o777, owner, one.linkname)
    if one.islnk():
        return added[posixpath.normpath(one.linkname.lstrip("/"))]
    if not one.isreg():
        return Path("fifo" if one.isfifo() else "device", one.mode & 0o7777, owner)
    file = archive.extractfile(one)
    assert file is not None, one.name
    capability = one.pax_headers.get("SCHILY.xattr.security.capability", "")
    content = hashlib.sha256(file.read() + capability.encode("utf-8", "surrogateescape")).hexdigest()
    return Path("file", one.mode & 0o7777, owner, content)


def _remove(tree: Tree, path: str, *, itself: bool = True) -> None:
    for other in [other for other in tree if other.startswith(f"{path}/") or (itself and other == path)]:
        del tree[other]
