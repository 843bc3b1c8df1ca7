"""Reads a layer's archive as it comes, and lays listings over each other as a container's file system does.

Whiteouts are those of the OCI image specification 1.1, "Layer Filesystem Changeset".
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.verify.facts import Listing, Told, Tree
from training_imgtool.verify.interesting_paths import LARGEST_TEXT, item, kind_of, settle, summed, wants_look

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


class _Stream:
    """Blocks as a file that is read once."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            if not self._rest:
                self._rest = memoryview(next(self._blocks, b""))
                if not self._rest:
                    break
            part = self._rest[:size]
            self._rest = self._rest[len(part) :]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


def read_layer(blocks: Iterator[bytes]) -> Listing:
    """What an uncompressed archive holds; reads it to its end. Raises VerificationError when it is damaged."""
    items: list[dict[str, Any]] = []
    folders: dict[str, int] = {}
    gone: list[str] = []
    emptied: list[str] = []
    try:
        with tarfile.open(fileobj=_Stream(blocks), mode="r|", errorlevel=1) as archive:  # type: ignore[call-overload]
            for member in archive:
                path = member.name.removeprefix("./").strip("/")
                folder, _, name = path.rpartition("/")
                if name == _OPAQUE:
                    emptied.append(folder)
                elif name.startswith(_WHITEOUT):
                    gone.append(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
                elif not member.isdir():
                    folders[folder] = folders.get(folder, 0) + (member.size if member.isreg() else 0)
                    told = _told(archive, member, path)
                    items += [told] if told else []
    except (tarfile.TarError, EOFError, OSError) as error:
        raise VerificationError(f"a layer is not a tar archive: {error}") from error
    for _ in blocks:  # to its end, so that its digest is checked
        pass
    return Listing(items=tuple(settle(items)), folders=folders, gone=tuple(gone), emptied=tuple(emptied))


def _told(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> dict[str, Any] | None:
    kind = kind_of(path)
    if not (member.isreg() or member.issym() or member.islnk()):
        return None
    link = member.linkname if not member.isreg() else None
    if kind is None and (link is not None or not wants_look(path, member.size)):
        return None

    def read(most: int) -> bytes:
        stream: IO[bytes] | None = archive.extractfile(member)
        return stream.read(min(most, LARGEST_TEXT)) if stream else b""

    return item(path, kind, member.size, read, link)


def overlaid(listings: Mapping[int, Listing], count: int) -> Tree:
    """The image's files of interest, from the listings of its layers by number; `count` is how many it has."""
    items: dict[str, Told] = {}
    folders: dict[str, int] = {}
    for number in range(count):
        listing = listings.get(number)
        if listing is None:
            continue
        hidden = (*listing.gone, *(f"{folder}/" for folder in listing.emptied))
        for path in [path for path in items if _hidden(path, hidden)]:
            del items[path]
        items |= {told["path"]: {**told, "layer": number} for told in listing.items}
        for folder, size in listing.folders.items():
            folders[folder] = folders.get(folder, 0) + size
    return Tree(items=items, folders=summed(folders), complete=len(listings) == count)


def _hidden(path: str, hidden: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") or one == "/" for one in hidden)
