"""Reads a layer's archive as engines do, and interprets each header as Go's archive/tar does.

Formats: POSIX ustar and pax, GNU's long names and links, base-256 numbers. A layer may come from a registry that nobody
trusts. So imgtool checks every size before it reads that many bytes, and finds the same names and the same ends of
entries as engines. Archives that Go refuses, and entries of types that Docker and containerd do not unpack, are errors.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.base.errors import NeedsEngineError, VerificationError
from training_imgtool.oci.direct.tree import FILE as PLAIN_FILE
from training_imgtool.oci.direct.tree import WHITEOUT, Attributes, Kind, Node, TreeMaker, make_folder, prune
from training_imgtool.oci.layers.tarhead import BLOCK, count_padding

FILE, HARD_LINK, LINK, FOLDER = "0", "1", "2", "5"
_LONGEST_EXTENSION = 1 << 20  # a pax header or a GNU long name
_EXTENSIONS = "xgLK"
_TYPES = "0123456"  # types that Docker and containerd unpack
_OLD_FILE = "\0"
_KEYS = ("path", "linkpath", "uid", "gid", "size", "GNU.sparse.name")  # the pax records to read
_EXTENDED = "SCHILY.xattr."
_OWNERS = {"uid": slice(108, 116), "gid": slice(116, 124)}  # their place in a header
_PIECE = 1 << 20  # bytes
_MOST_ENTRIES = 1_000_000  # in one layer; layers of the largest known training images have a third
_MOST_BYTES = 64 << 30  # in one archive
_LONGEST_PATH = 4096  # Linux' PATH_MAX
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One entry.

    Attributes:
        path: the path in the archive.
        kind: ustar's type flag: FILE, HARD_LINK, LINK, FOLDER, or the flag of a device or a FIFO.
        attributes: mode and owner.
        target: the target of a link.
        size: bytes of content; 0 unless a file.
        extended: whether the entry has extended attributes, such as a capability.
    """

    path: str
    kind: str
    attributes: Attributes
    target: str
    size: int
    extended: bool = False


class TarReader:
    """Reads an archive once. Error messages call the layer "it"; the caller adds the layer's name.

    Args:
        blocks: the archive, uncompressed.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = memoryview(b"")
        self._left = 0  # bytes of the current member's content

    def members(self) -> Iterator[Member]:
        """Yields the entries in their order; raises VerificationError where an engine would fail."""
        while (header := self._header()) is not None:
            self._left = header.size
            yield header
            self._skip(self._left + count_padding(header.size))
        while self._fill():  # so that the layer's digest is checked
            self._rest = memoryview(b"")

    def content(self) -> Iterator[bytes]:
        """Yields the rest of the current member's content."""
        while self._left and (piece := self._take(min(self._left, _PIECE))):
            self._left -= len(piece)
            yield piece

    def _header(self) -> Member | None:
        pax: dict[str, str] = {}
        gnu: dict[str, str] = {}
        while True:
            block = self._block()
            if block is None:
                return None
            _check(block)
            kind, size = chr(block[156]), _number(block[124:136])
            if size < 0:
                raise VerificationError(f"it has an entry with a negative size, {size}")
            if kind not in _EXTENSIONS:
                return _member(block, kind, pax | gnu)
            data = self._extension(size)
            if kind == "x":
                pax = _pax(data)
            elif kind != "g":  # Go ignores pax records for all entries
                gnu["path" if kind == "L" else "linkpath"] = _text(data)

    def _block(self) -> bytes | None:
        """Reads the block of the next header; returns None at the archive's end, which may lack its blocks of zeros."""
        block = self._read(BLOCK)
        if block.strip(b"\0"):
            if len(block) < BLOCK:
                raise VerificationError("it ends in the middle of a header")
            return block
        if self._read(BLOCK).strip(b"\0"):
            raise VerificationError("it has a block of zeros before its end")
        return None

    def _extension(self, size: int) -> bytes:
        if size > _LONGEST_EXTENSION:
            raise VerificationError(f"it has an extended header of {size} bytes, more than {_LONGEST_EXTENSION}")
        data = self._read(size)
        if len(data) != size:
            raise VerificationError("it ends in the middle of a header")
        self._skip(count_padding(size))
        return data

    def _fill(self) -> bool:
        """Fills the buffer if it is empty; returns False at the end of the archive."""
        if not self._rest:
            self._rest = memoryview(next(filter(None, self._blocks), b""))
        return bool(self._rest)

    def _take(self, most: int) -> bytes:
        """Returns at most `most` bytes; returns an empty value only at the end."""
        self._fill()
        piece, self._rest = self._rest[:most], self._rest[most:]
        return bytes(piece)

    def _read(self, size: int) -> bytes:
        """Reads exactly `size` bytes, or fewer if the archive ends before."""
        data = self._take(size)
        while len(data) < size and self._fill():
            data += self._take(size - len(data))
        return data

    def _skip(self, size: int) -> None:
        while size:
            if not self._fill():
                raise VerificationError("it ends in the middle of a file")
            step = min(size, len(self._rest))
            self._rest = self._rest[step:]
            size -= step


def _member(block: bytes, kind: str, extended: dict[str, str]) -> Member:
    prefix, name = _prefix(block), _text(block[:100])
    path = extended.get("GNU.sparse.name") or extended.get("path") or (f"{prefix}/{name}" if prefix else name)
    if kind == _OLD_FILE:
        kind = FOLDER if path.endswith("/") else FILE  # how tar marked folders before 1988
    if kind not in _TYPES:
        raise VerificationError(f"it has an entry of the type {kind!r}, which engines do not unpack")
    try:
        uid, gid = (int(extended.get(key) or _number(block[at])) for key, at in _OWNERS.items())
    except ValueError as error:
        raise VerificationError(f"{path[:80]!r} has an owner that is not a number") from error
    return Member(
        path=path,
        kind=kind,
        attributes=Attributes(_number(block[100:108]) & 0o7777, uid, gid),
        target=extended.get("linkpath") or _text(block[157:257]),
        size=int(extended.get("size") or _number(block[124:136])) if kind == FILE else 0,
        extended=_EXTENDED in extended,
    )


def _prefix(block: bytes) -> str:
    """Reads the beginning of an entry's path, which a header may store in a field of its own, the prefix.

    In GNU's format, GNU tar writes times into this field, and Go before 1.8 wrote a prefix. Like Go, imgtool reads a
    prefix if the field does not contain valid times.
    """
    if block[257:263] == b"ustar\0":
        return _text(block[345 : 476 if block[508:] == b"tar\0" else 500])
    if block[257:265] != b"ustar  \0":
        return ""
    try:
        for time in (block[345:357], block[357:369]):
            _number(time)
    except VerificationError:
        prefix = _text(block[345:500])
        return prefix if prefix.isascii() else ""
    return ""


def _check(block: bytes) -> None:
    total = sum(block[:148]) + 8 * 32 + sum(block[156:])
    signed = total - 256 * sum(byte > 127 for byte in block[:148] + block[156:])  # as in some old archives
    if _number(block[148:156]) not in {total, signed}:
        raise VerificationError("it is not a tar archive, or it is damaged")


def _number(data: bytes) -> int:
    if data[0] & 0x80:
        bits = 8 * len(data) - 1
        return (int.from_bytes(data, "big") & ((1 << bits) - 1)) - (1 << bits if data[0] & 0x40 else 0)
    text = data.strip(b" \0").split(b"\0", 1)[0]
    if re.fullmatch(rb"[0-7]*", text) is None:
        raise VerificationError(f"it has {text!r} where a number belongs, so it is not a tar archive, or it is damaged")
    return int(text or b"0", 8)


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _pax(data: bytes) -> dict[str, str]:
    """Returns those records of a pax header that this module needs."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        length, blank, _ = data[at : at + 20].partition(b" ")
        if not blank or not length.isdigit() or int(length) <= len(length) + 1 or at + int(length) > len(data):
            raise VerificationError("it has a damaged pax header")
        key, _, value = data[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at += int(length)
    if re.fullmatch(r"[0-9]*", records.get("size", "")) is None:
        raise VerificationError("it has a pax header whose size is not a number")
    found = {key: records[key] for key in _KEYS if key in records}
    return found | ({_EXTENDED: ""} if any(key.startswith(_EXTENDED) for key in records) else {})


def read_layer_tree(blocks: Iterable[bytes]) -> Node:
    """Reads the tree of a layer and closes its largest folders. Messages call the layer "it"; the caller adds a name.

    Args:
        blocks: the archive, uncompressed.

    Raises:
        VerificationError: the layer is not an archive, or is damaged.
        NeedsEngineError: the layer has too many entries to list.
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
            raise VerificationError(f"it is larger than {_MOST_BYTES >> 30} GiB")
        yield block


def _add(maker: TreeMaker, member: Member, links: dict[str, Node]) -> None:
    """Adds an entry; `links` contains the symbolic links so far, because a hard link may point to a symbolic link."""
    path = _clean(member.path)
    above, _, name = path.rpartition("/")
    if name == _OPAQUE:
        maker.make_opaque(above)
    elif name.startswith(_WHITEOUT):
        if not name.startswith(f"{_WHITEOUT}{_WHITEOUT}"):  # aufs' internal files
            maker.add(posixpath.join(above, name.removeprefix(_WHITEOUT)), WHITEOUT)
    elif member.kind == FOLDER:
        maker.add(path, make_folder(member.attributes))
    elif path:
        node = PLAIN_FILE
        if member.kind == LINK:
            node = links[path] = Node(Kind.LINK, target=member.target)
        elif member.kind == HARD_LINK:
            node = links.get(_clean(member.target), PLAIN_FILE)
        maker.add(path, node)


def _clean(path: str) -> str:
    if len(path) > _LONGEST_PATH or "\0" in path:
        raise VerificationError(f"it has a path that is too long or contains a NUL: {path[:80]!r}…")
    return posixpath.normpath(f"/{path}").lstrip("/")  # engines unpack into the image's root
