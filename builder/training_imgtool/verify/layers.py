"""Reads a layer's archive as it comes, and lays listings over each other as a container's file system does.

Whiteouts, and what replaces what, are those of the OCI image specification 1.1, "Layer Filesystem Changeset". What
makes an engine refuse a layer is what Docker 20.10 refuses: a path twice, and a hard link to no earlier entry.
"""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.verify.compare_bytecode import Contents
from training_imgtool.verify.facts import Fields, FileContent, Listing, Tree, VenvFiles
from training_imgtool.verify.inside.interesting_paths import LARGEST_TEXT, describe, kind_of, settle, summed, wants_look
from training_imgtool.verify.inside.venv_files import VENV, compare_records

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_BLOCK = 1 << 20
_MOST_ENTRIES = 1_000_000
_MOST_TEXT = 256 << 20  # bytes of metadata and sources in one layer
_LARGEST_HEADER = 1 << 20  # bytes of an extended header, which tarfile reads as a whole
_EXTENDED = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_EXTENDED_GNU = frozenset({tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK})


class _Header(tarfile.TarInfo):
    """A header whose extended parts have a limit."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        if self.type in _EXTENDED | _EXTENDED_GNU and self.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"an extended header of {self.size} bytes")
        member: tarfile.TarInfo | None = super()._proc_member(archive)  # type: ignore[misc]
        return member


class _Archive:
    """Blocks as a file that is read once: counted, limited and hashed."""

    def __init__(self, blocks: Iterator[bytes], most: int) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")
        self._most = most
        self._size = 0
        self._digest = hashlib.sha256()

    def _next(self) -> bytes:
        block = next(self._blocks, b"")
        self._size += len(block)
        if self._size > self._most:
            raise VerificationError(f"it inflates to more than {self._most / 1e6:.0f} MB, so the rest is not read")
        self._digest.update(block)
        return block

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            if not self._rest:
                self._rest = memoryview(self._next())
                if not self._rest:
                    break
            part = self._rest[:size]
            self._rest = self._rest[len(part) :]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def diff_id(self) -> str:
        """Reads to the end and returns the digest of all bytes."""
        while self._next():
            pass
        return f"sha256:{self._digest.hexdigest()}"


@dataclass(slots=True)
class _Content:
    """What the entries of one archive amount to."""

    hashed: bool
    kept: Contents | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    entries: dict[str, bool] = field(default_factory=dict)
    files: dict[str, FileContent] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    text: int = 0

    def listing(self, diff_id: str | None) -> Listing:
        return Listing(
            items=tuple(settle(self.items)),
            folders=self.folders,
            gone=tuple(self.gone),
            emptied=tuple(self.emptied),
            entries=self.entries,
            files=self.files if self.hashed else None,
            diff_id=diff_id,
            faults=tuple(self.faults),
        )


def read_layer(blocks: Iterator[bytes], *, hashed: bool, most: int, kept: Contents | None = None) -> Listing:
    """Reads an uncompressed archive to its end; a damaged one has no diff ID, and a fault that says why.

    Args:
        blocks: the archive's bytes.
        hashed: whether to hash every file.
        most: bytes after which reading stops with a fault.
        kept: takes the files that it wants.
    """
    archive, content = _Archive(blocks, most), _Content(hashed, kept)
    try:
        with tarfile.open(fileobj=archive, mode="r|", errorlevel=1, tarinfo=_Header) as tar:  # type: ignore[call-overload]
            for member in tar:
                _add(content, tar, member)
                tar.members.clear()  # which only grows
        return content.listing(archive.diff_id())
    except VerificationError as error:
        content.faults.append(error.message)
    except (tarfile.TarError, EOFError, OSError) as error:
        content.faults.append(f"it is not a tar archive: {error}")
    return content.listing(None)


def _add(content: _Content, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = posixpath.normpath(f"/{member.name}").lstrip("/")
    if len(content.entries) == _MOST_ENTRIES:
        raise VerificationError(f"it has more than {_MOST_ENTRIES:,} entries, so the rest is not read")
    if path in content.entries:
        content.faults.append(f"/{path} is in it twice")
    folder, _, name = path.rpartition("/")
    if name == _OPAQUE:
        content.emptied.append(folder)
        return
    if name.startswith(_WHITEOUT):
        content.gone.append(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
        return
    content.entries[path] = not member.isdir()
    if member.isdir():
        return
    content.folders[folder] = content.folders.get(folder, 0) + (member.size if member.isreg() else 0)
    if member.islnk() and posixpath.normpath(f"/{member.linkname}").lstrip("/") not in content.entries:
        content.faults.append(f"/{path} is a hard link to {member.linkname}, which the layer does not have before it")
    if member.isreg() or member.issym() or member.islnk():
        _read_file(content, tar, member, path)


def _read_file(content: _Content, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    kind = kind_of(path)
    link = member.linkname if not member.isreg() else None
    interesting = kind is not None or (link is None and wants_look(path, member.size))
    start = b""
    keeps = content.kept is not None and content.kept.wants(path) and member.size <= LARGEST_TEXT
    if member.isreg() and (interesting or content.hashed):
        start, digest = _read(tar, member, LARGEST_TEXT if interesting or keeps else 0)
        content.files[path] = (member.size, digest)
        if content.kept is not None and keeps:
            content.kept.keep(digest, start)
    elif member.issym():
        content.files[path] = (0, f"->{member.linkname}")
    elif member.islnk():
        target = posixpath.normpath(f"/{member.linkname}").lstrip("/")
        content.files[path] = content.files.get(target, (0, f"a hard link to /{target}"))
    if not interesting:
        return
    fields = describe(path, kind, member.size, lambda most: start[:most], link)
    if fields:
        content.text += len(fields.get("text", ""))
        if content.text > _MOST_TEXT:
            raise VerificationError(f"it has more than {_MOST_TEXT >> 20} MiB of metadata, so the rest is not read")
        content.items.append(fields)


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> tuple[bytes, str]:
    """The first `most` bytes of a file, and its SHA-256."""
    stream, digest, start = tar.extractfile(member), hashlib.sha256(), bytearray()
    read: Callable[[int], bytes] = stream.read if stream else lambda _: b""
    while block := read(_BLOCK):
        digest.update(block)
        start += block[: max(0, most - len(start))]
    return bytes(start), urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def overlaid(listings: Mapping[int, Listing], count: int, exclude: tuple[str, ...] = ()) -> Tree:
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
            for path in [path for path in below if _hidden(path, listing)]:
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
        folders=summed(folders),
        complete=len(listings) == count,
        files=files,
        venv=VenvFiles(**differences),
    )


def _hidden(path: str, above: Listing) -> bool:
    """Whether a layer above replaces a file, removes it, or puts something else than a folder where its folder was."""
    if path in above.entries or path in above.gone or "" in above.emptied:
        return True
    folder = path
    while folder := folder.rpartition("/")[0]:
        if above.entries.get(folder) or folder in above.gone or folder in above.emptied:
            return True
    return False
