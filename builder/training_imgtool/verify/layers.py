"""Reads a layer's archive as it comes, and lays listings over each other as a container's file system does.

Whiteouts, and what replaces what, are those of the OCI image specification 1.1, "Layer Filesystem Changeset". What
makes an engine refuse a layer is what Docker 20.10 refuses: a path twice, and a hard link to no earlier entry.
"""

from __future__ import annotations

import hashlib
import posixpath
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.direct.layers.tar_reader import FILE, FOLDER, HARD_LINK, LINK, Member, TarReader
from training_imgtool.verify.compare_bytecode import Contents
from training_imgtool.verify.facts import Fields, FileContent, Listing, Tree, VenvFiles
from training_imgtool.verify.inside.interesting_paths import (
    LARGEST_TEXT,
    classify,
    describe,
    settle,
    sum_folders,
    wants_look,
)
from training_imgtool.verify.inside.venv_files import VENV, compare_records

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_MOST_ENTRIES = 1_000_000
_MOST_TEXT = 256 << 20  # bytes of metadata and sources in one layer


@dataclass(slots=True)
class _Content:
    """What the entries of one archive amount to."""

    hashed: bool
    contents: Contents | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    entries: dict[str, bool] = field(default_factory=dict)
    implied: dict[str, bool] = field(default_factory=dict)
    files: dict[str, FileContent] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    text: int = 0

    def imply(self, folder: str) -> None:
        """Adds the folder that an entry lies in, be it a whiteout, and those above it: engines make them."""
        while folder and folder not in self.implied:
            self.implied[folder] = False
            folder = folder.rpartition("/")[0]

    def listing(self, diff_id: str | None) -> Listing:
        return Listing(
            items=tuple(settle(self.items)),
            folders=self.folders,
            removed=tuple(self.removed),
            emptied=tuple(self.emptied),
            entries={**self.implied, **self.entries},
            files=self.files if self.hashed else None,
            diff_id=diff_id,
            faults=tuple(self.faults),
        )


def read_layer(blocks: Iterator[bytes], *, hashed: bool, most: int, contents: Contents | None = None) -> Listing:
    """Reads an uncompressed archive to its end; a damaged one has no diff ID, and a fault that says why.

    Args:
        blocks: the archive's bytes.
        hashed: whether to hash every file.
        most: bytes after which reading stops with a fault.
        contents: takes the files that it wants.
    """
    digest, content = hashlib.sha256(), _Content(hashed, contents)
    reader = TarReader(_counted(blocks, most, digest))
    try:
        for member in reader.members():
            _add(content, reader, member)
        return content.listing(f"sha256:{digest.hexdigest()}")
    except VerificationError as error:
        content.faults.append(error.message)
    return content.listing(None)


def _counted(blocks: Iterator[bytes], most: int, digest: Hash) -> Iterator[bytes]:
    """The same blocks, hashed; raises VerificationError after `most` bytes."""
    size = 0
    for block in blocks:
        size += len(block)
        if size > most:
            raise VerificationError(f"it inflates to more than {most / 1e6:.0f} MB, so the rest is not read")
        digest.update(block)
        yield block


def _add(content: _Content, reader: TarReader, member: Member) -> None:
    path = posixpath.normpath(f"/{member.path}").lstrip("/")
    if len(content.entries) == _MOST_ENTRIES:
        raise VerificationError(f"it has more than {_MOST_ENTRIES:,} entries, so the rest is not read")
    if path in content.entries:
        content.faults.append(f"/{path} is in it twice")
    folder, _, name = path.rpartition("/")
    content.imply(folder)
    if name == _OPAQUE:
        content.emptied.append(folder)
        return
    if name.startswith(_WHITEOUT):
        content.removed.append(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
        return
    content.entries[path] = member.kind != FOLDER
    if member.kind == FOLDER:
        return
    content.folders[folder] = content.folders.get(folder, 0) + member.size
    target = posixpath.normpath(f"/{member.target}").lstrip("/")
    if member.kind == HARD_LINK and target not in content.entries:
        content.faults.append(f"/{path} is a hard link to {member.target}, which the layer does not have before it")
    if member.kind in {FILE, LINK, HARD_LINK}:
        _read_file(content, reader, member, path)


def _read_file(content: _Content, reader: TarReader, member: Member, path: str) -> None:
    kind = classify(path)
    link = member.target if member.kind != FILE else None
    interesting = kind is not None or (link is None and wants_look(path, member.size))
    start = b""
    keeps = content.contents is not None and content.contents.wants(path) and member.size <= LARGEST_TEXT
    if member.kind == FILE and (interesting or content.hashed):
        start, digest = _read(reader, LARGEST_TEXT if interesting or keeps else 0)
        content.files[path] = (member.size, digest)
        if content.contents is not None and keeps:
            content.contents.keep(digest, start)
    elif member.kind == LINK:
        content.files[path] = (0, f"->{member.target}")
    elif member.kind == HARD_LINK:
        target = posixpath.normpath(f"/{member.target}").lstrip("/")
        content.files[path] = content.files.get(target, (0, f"a hard link to /{target}"))
    if not interesting:
        return
    fields = describe(path, kind, member.size, lambda most: start[:most], link)
    if fields:
        content.text += len(fields.get("text", ""))
        if content.text > _MOST_TEXT:
            raise VerificationError(f"it has more than {_MOST_TEXT >> 20} MiB of metadata, so the rest is not read")
        content.items.append(fields)


def _read(reader: TarReader, most: int) -> tuple[bytes, str]:
    """The first `most` bytes of the present member, and its SHA-256."""
    digest, start = hashlib.sha256(), bytearray()
    for block in reader.content():
        digest.update(block)
        start += block[: max(0, most - len(start))]
    return bytes(start), urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def overlay(listings: Mapping[int, Listing], count: int, exclude: tuple[str, ...] = ()) -> Tree:
    """The image's files of interest, from the listings of its layers by number.

    Args:
        listings: those that were read.
        count: how many layers the image has.
        exclude: what the spec leaves out of site-packages.
    """
    items: dict[str, Fields] = {}
    files: dict[str, FileContent] = {}
    folders: dict[str, int] = {}
    for number in range(count):
        listing = listings.get(number)
        if listing is None:
            continue
        for below in (items, files):
            for path in [path for path in below if _is_hidden(path, listing)]:
                del below[path]
        items |= {fields["path"]: {**fields, "layer": number} for fields in listing.items}
        files |= listing.files or {}
        for folder, size in listing.folders.items():
            folders[folder] = folders.get(folder, 0) + size
    records = {
        path: str(fields["text"]) for path, fields in items.items() if fields["kind"] == "record" and "text" in fields
    }
    venv = {path: file for path, file in files.items() if path.startswith(VENV)}
    differences = {name: tuple(paths) for name, paths in compare_records(venv, records, list(exclude)).items()}
    return Tree(
        items=items,
        folders=sum_folders(folders),
        complete=len(listings) == count,
        files=files,
        venv=VenvFiles(**differences),
    )


def _is_hidden(path: str, above: Listing) -> bool:
    """Whether a layer above replaces a file, removes it, or puts something else than a folder where its folder was."""
    if path in above.entries or path in above.removed or "" in above.emptied:
        return True
    folder = path
    while folder := folder.rpartition("/")[0]:
        if above.entries.get(folder) or folder in above.removed or folder in above.emptied:
            return True
    return False
