"""A layer's archive as a tree of its paths, read header by header without keeping its contents.

Formats: POSIX ustar and pax, GNU's long names and links, base-256 numbers. A layer comes from a registry that may be
anybody's, so every size is checked before anything of that size is read, and what no engine unpacks is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.core.errors import NeedsEngineError, VerificationError
from training_imgtool.direct.layers.tarhead import BLOCK, padding
from training_imgtool.direct.tree import FILE, WHITEOUT, Attributes, Kind, Node, TreeMaker, folder, prune

_MOST_ENTRIES = 1_000_000  # in one layer; the largest images that people train in have a third of it
_MOST_BYTES = 64 << 30  # of archive
_LONGEST_EXTENSION = 1 << 20  # a pax header or a GNU long name
_LONGEST_PATH = 4096  # Linux' PATH_MAX
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_WITHOUT_DATA = frozenset("123456")  # the types whose size counts nothing that follows


def layer_tree(blocks: Iterable[bytes]) -> Node:
    """The tree of one layer, its largest folders closed. Messages call the layer "it": the caller names it.

    Args:
        blocks: the archive, uncompressed.

    Raises:
        VerificationError: it is no archive, is damaged, or leads out of the root.
        NeedsEngineError: it has too many entries to list.
    """
    maker = TreeMaker()
    for number, header in enumerate(_headers(_Reader(blocks))):
        if number >= _MOST_ENTRIES:
            raise NeedsEngineError(f"it has more than {_MOST_ENTRIES} entries")
        _add(maker, header)
    return prune(maker.root)


@dataclass(frozen=True, slots=True)
class _Header:
    path: str
    kind: str
    attributes: Attributes
    target: str


def _add(maker: TreeMaker, header: _Header) -> None:
    path = _clean(header.path)
    above, _, name = path.rpartition("/")
    if name == _OPAQUE:
        maker.make_opaque(above)
    elif name.startswith(_WHITEOUT):
        if not name.startswith(f"{_WHITEOUT}{_WHITEOUT}"):  # aufs' own bookkeeping
            maker.add(posixpath.join(above, name.removeprefix(_WHITEOUT)), WHITEOUT)
    elif header.kind == "5":
        maker.add(path, folder(header.attributes))
    elif path:
        maker.add(path, Node(Kind.LINK, target=header.target) if header.kind == "2" else FILE)


def _clean(path: str) -> str:
    if len(path) > _LONGEST_PATH or "\0" in path:
        raise VerificationError(f"it has a path that no system takes: {path[:80]!r}…")
    cleaned = posixpath.normpath(path.lstrip("/") or ".")
    if cleaned == ".." or cleaned.startswith("../"):
        raise VerificationError(f"it has the path {path!r}, which leads out of the root")
    return "" if cleaned == "." else cleaned


class _Reader:
    """Bytes out of blocks; skips what is not wanted."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""
        self._total = 0

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; fewer at the end of the archive only."""
        while len(self._rest) < size and (block := self._next()):
            self._rest += block
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def skip(self, size: int) -> None:
        """Passes over `size` bytes; raises VerificationError when the archive ends before."""
        while size > len(self._rest):
            size -= len(self._rest)
            self._rest = self._next()
            if not self._rest:
                raise VerificationError("it ends in the middle of a file")
        self._rest = self._rest[size:]

    def drain(self) -> None:
        """Reads to the end, so that the layer's digest is checked."""
        while self._next():
            pass

    def _next(self) -> bytes:
        block = next(self._blocks, b"")
        self._total += len(block)
        if self._total > _MOST_BYTES:
            raise VerificationError(f"it has more than {_MOST_BYTES >> 30} GiB")
        return block


def _headers(reader: _Reader) -> Iterator[_Header]:
    extended: dict[str, str] = {}
    while True:
        block = reader.read(BLOCK)
        if len(block) < BLOCK or block == bytes(BLOCK):  # archives may lack their end
            if block.strip(b"\0"):
                raise VerificationError("it ends in the middle of a header")
            reader.drain()
            return
        _check(block)
        kind = chr(block[156])
        size = int(extended.get("size") or _number(block[124:136]))
        if size < 0 or size > _MOST_BYTES:
            raise VerificationError(f"it has an entry of {size} bytes")
        if kind in "xgLK":
            data = _extension(reader, size)
            extended |= _pax(data) if kind == "x" else _gnu(kind, data)
            continue
        yield _header(block, kind, extended)
        if kind not in _WITHOUT_DATA:
            reader.skip(size + padding(size))
        extended = {}


def _extension(reader: _Reader, size: int) -> bytes:
    if size > _LONGEST_EXTENSION:
        raise VerificationError(f"it has a header of {size} bytes")
    data = reader.read(size)
    reader.skip(padding(size))
    if len(data) != size:
        raise VerificationError("it ends in the middle of a header")
    return data


def _header(block: bytes, kind: str, extended: dict[str, str]) -> _Header:
    name, prefix = _text(block[:100]), _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    path = extended.get("path", f"{prefix}/{name}" if prefix else name)
    if path.endswith("/") and kind in "0\0":  # what tar had for folders before 1988
        kind = "5"
    try:
        uid, gid = (int(extended[key]) if key in extended else None for key in ("uid", "gid"))
    except ValueError as error:
        raise VerificationError(f"{path[:80]!r} has an owner that is no number") from error
    attributes = Attributes(
        _number(block[100:108]) & 0o7777,
        _number(block[108:116]) if uid is None else uid,
        _number(block[116:124]) if gid is None else gid,
    )
    return _Header(path, kind, attributes, extended.get("linkpath", _text(block[157:257])))


def _check(block: bytes) -> None:
    total = sum(block[:148]) + 8 * 32 + sum(block[156:])
    signed = total - 256 * sum(byte > 127 for byte in block[:148] + block[156:])  # what some old tars wrote
    if _number(block[148:156]) not in {total, signed}:
        raise VerificationError("it is not a tar archive, or it is damaged")


def _number(data: bytes) -> int:
    if data[0] in {0x80, 0xFF}:
        return int.from_bytes(data[1:], "big") - (1 << 8 * (len(data) - 1) if data[0] == 0xFF else 0)
    text = data.split(b"\0", 1)[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError as error:
        raise VerificationError(f"it has {text!r} where a number belongs") from error


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _gnu(kind: str, data: bytes) -> dict[str, str]:
    return {} if kind == "g" else {{"L": "path", "K": "linkpath"}[kind]: _text(data)}


def _pax(data: bytes) -> dict[str, str]:
    """The records of a pax header that matter here."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        length, blank, _ = data[at : at + 20].partition(b" ")
        if not blank or not length.isdigit() or int(length) <= len(length) + 1 or at + int(length) > len(data):
            raise VerificationError("it has a damaged pax header")
        key, _, value = data[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at += int(length)
    if not records.get("size", "0").isdigit():
        raise VerificationError("it has a pax header whose size is not a number")
    return {key: records[key] for key in ("path", "linkpath", "uid", "gid", "size") if key in records}
