"""Makes deterministic tar headers fast: POSIX ustar, with pax records only for values that do not fit into ustar."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)
_NAME, _PREFIX = 100, 155
_MOST_OCTAL_SIZE = 8**11  # 12 bytes: 11 octal digits and a NUL
_MOST_OCTAL_ID = 8**7


class Kind(StrEnum):
    """The kind of an entry; the value is ustar's type flag."""

    FILE = "0"
    HARD_LINK = "1"
    LINK = "2"
    FOLDER = "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry's metadata.

    Attributes:
        path: relative to the root, without a leading or trailing slash.
        size: bytes of content; 0 unless a file.
        target: the target of a symbolic link; for a hard link, the other path, relative to the root.
    """

    path: str
    kind: Kind
    mode: int
    size: int = 0
    target: str = ""
    uid: int = 0
    gid: int = 0


def count_padding(size: int) -> int:
    """Returns how many zero bytes fill the last block of a content of `size` bytes."""
    return -size % BLOCK


def make_header(entry: Entry, mtime: int) -> bytes:
    """Returns the entry's header blocks; `mtime` is in seconds since 1970."""
    name = entry.path.encode("utf-8", "surrogateescape")
    if entry.kind is Kind.FOLDER:
        name += b"/"
    target = entry.target.encode("utf-8", "surrogateescape")
    prefix, short = _split(name)
    records = {}
    if short is None or not name.isascii():
        records["path"] = name
        prefix, short = b"", name[:_NAME]
    if len(target) > _NAME or not target.isascii():
        records["linkpath"] = target
    numbers = {"size": (entry.size, _MOST_OCTAL_SIZE), "uid": (entry.uid, _MOST_OCTAL_ID)}
    numbers["gid"] = (entry.gid, _MOST_OCTAL_ID)
    records |= {key: b"%d" % value for key, (value, most) in numbers.items() if value >= most}
    block = _make_ustar(short, prefix, target[:_NAME], entry, mtime)
    return _make_pax(records, mtime) + block if records else block


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """Splits a path into ustar's prefix and name; the name is None if the path does not fit into the two fields."""
    if len(name) <= _NAME:
        return b"", name
    slash = name.find(b"/", len(name) - _NAME - 1)
    if 0 < slash <= _PREFIX and slash + 1 < len(name):
        return name[:slash], name[slash + 1 :]
    return b"", None


def _make_ustar(name: bytes, prefix: bytes, target: bytes, entry: Entry, mtime: int) -> bytes:
    uid = entry.uid if entry.uid < _MOST_OCTAL_ID else 0
    gid = entry.gid if entry.gid < _MOST_OCTAL_ID else 0
    size = entry.size if entry.size < _MOST_OCTAL_SIZE else 0
    head = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(_NAME, b"\0"), entry.mode, uid, gid, size, mtime)
    tail = entry.kind.value.encode() + target.ljust(_NAME, b"\0") + b"ustar\x0000" + bytes(80) + prefix
    checksum = sum(head) + sum(tail) + 8 * 32  # for the checksum, its own field has spaces
    return b"%b%06o\0 %b" % (head, checksum, tail.ljust(BLOCK - len(head) - 8, b"\0"))


def _make_pax(records: dict[str, bytes], mtime: int) -> bytes:
    body = b"".join(_record(key.encode(), value) for key, value in sorted(records.items()))
    extended = Entry(path="PaxHeaders/entry", kind=Kind.FILE, mode=0o644, size=len(body))
    block = _make_ustar(b"PaxHeaders/entry", b"", b"", extended, mtime)
    block = block[:156] + b"x" + block[157:]
    checksum = sum(block[:148]) + sum(block[156:]) + 8 * 32
    return block[:148] + b"%06o\0 " % checksum + block[156:] + body + bytes(count_padding(len(body)))


def _record(key: bytes, value: bytes) -> bytes:
    """Returns `LENGTH KEY=VALUE` and a newline. LENGTH is the record's size, including LENGTH's own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)
