"""Faults in layers: entries that readers of archives read in different ways, streams, and places."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from backports import zstd

from tests.verify.planted.world import Forgery
from training_imgtool.model.spec import Role
from training_imgtool.oci.registry.manifests import OCI_LAYER_ZSTD

EVIL = b"import os\nos.write(2, b'evil')\n"
CODE = "app/trainer/task.py"
PTH = "opt/venv/lib/python3.11/site-packages/evil.pth"
Plant = Callable[[Forgery], None]


def header(name: str, kind: bytes = b"0", data: bytes = b"", *, link: str = "", **fields: Any) -> bytes:
    """An entry; `fields` are those of TarInfo, or byte ranges `at_OFFSET` of the header itself."""
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, len(data), link
    raw = {int(key[3:]): fields.pop(key) for key in list(fields) if key.startswith("at_")}
    for key, value in fields.items():
        setattr(member, key, value)
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")[-512:])
    for offset, value in raw.items():
        block[offset : offset + len(value)] = value
    if 148 not in raw:
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + bytes(-len(data) % 512)


def pax(kind: bytes = b"x", **records: str) -> bytes:
    """An extended header; `__` in a name is a dot."""
    data = b""
    for key, value in records.items():
        text = f" {key.replace('__', '.')}={value}\n".encode("utf-8", "surrogateescape")
        digits = len(str(len(text) + len(str(len(text)))))
        data += str(len(text) + digits).encode() + text
    return header("pax", kind, data)


_SHORT = header(CODE, data=b"pass\n")
_EVIL = header(PTH, data=EVIL)


def _sparse(places: str, size: str) -> bytes:
    return pax(GNU__sparse__map=places, GNU__sparse__numblocks="1", GNU__sparse__size=size) + _SHORT


ENTRIES: dict[str, bytes] = {
    # red.md S1-1 to S1-4 and S2-1
    "g between x and its entry": pax(path=CODE, size="11") + pax(b"g", comment="hi") + _EVIL,
    "x then g with a path": pax(path=CODE) + pax(b"g", path="usr/bin/evil") + header("x", data=EVIL),
    "L then g": header("L", b"L", CODE.encode() + b"\0") + pax(b"g", comment="a") + header("usr/bin/evil", data=EVIL),
    "owners in x, then g": pax(uid="0", gid="0") + pax(b"g", comment="a") + header(CODE, data=b"1", uid=1000),
    "sparse 0.1 with a tail": _sparse("0,5", "5000"),
    "sparse 0.1 with a head": _sparse("9,5", "14"),
    "sparse name alone": pax(GNU__sparse__name="usr/bin/evil") + _SHORT,
    "sparse bomb": _sparse("0,5", "314572800"),
    "digits without an end": pax(size="9" * 5000) + _SHORT,
    "a time that is no number": header(CODE, data=b"1", at_136=b"yesterday\0\0\0"),
    "an owner 0_0": pax(uid="0_0") + _SHORT,
    # further kinds
    "file": _EVIL,
    "file of the base": header("etc/passwd", data=b"root::0:0::/:/bin/sh\n"),
    "setuid": header("usr/bin/su", data=EVIL, mode=0o4755),
    "whiteout": header("usr/lib/.wh.data"),
    "opaque": header("usr/lib/.wh..wh..opq"),
    "aufs folder": header("etc/.wh..wh.plnk/", b"5"),
    "folder for all": header("app/", b"5", mode=0o777),
    "symbolic link": header("app/trainer", b"2", link="/tmp"),
    "link and a file through it": header("app/x", b"2", link="/etc") + header("app/x/passwd", data=EVIL),
    "hard link": header("app/passwd", b"1", link="etc/passwd"),
    "character device": header("dev/mem", b"3", devmajor=1, devminor=1),
    "old sparse": header(CODE, b"S", b"pass\n"),
    "unknown type": header(PTH, b"Z", EVIL),
    "g with a path": pax(b"g", path="usr/bin/evil") + _SHORT,
    "path of x": pax(path=PTH) + header("x", data=EVIL),
    "smaller size of x": pax(size="5") + header(CODE, data=b"pass\n" + bytes(507) + _EVIL),
    "capability": pax(SCHILY__xattr__security__capability="x") + _SHORT,
    "overlay attribute": pax(SCHILY__xattr__trusted__overlay__opaque="y") + header("usr/", b"5"),
    "sparse 1.0": pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name=CODE, GNU__sparse__realsize="9")
    + header("x", data=b"1\n0\n5\n".ljust(512, b"\0") + b"pass\n"),
    "record with a wrong length": header("pax", b"x", b"99 path=evil\n") + _SHORT,
    "entry twice": header(CODE, data=b"pass\n") * 2,
    "path upwards": header("app/../etc/passwd", data=EVIL),
    "absolute path": header("/etc/passwd", data=EVIL),
    "no name": header("", data=EVIL),
    "name that is not UTF-8": header("app/\udcff", data=EVIL),
    "size of 256": header(CODE, data=b"pass\n", at_124=b"\x80" + bytes(10) + b"\5"),
    "wrong sum": header(CODE, data=b"1", at_148=b"000000\0 "),
    "magic of POSIX with a prefix": header("task.py", data=EVIL, at_257=b"ustar\00000", at_345=b"app/trainer"),
    "file over a folder": header("opt/venv", data=EVIL),
    "end in the middle": bytes(1024) + _EVIL,
    "garbage": b"no header" * 100,
    "byte behind the content": header(CODE, data=b"pass\n")[:-1] + b"x",
}  # fmt: skip


def _insert(entry: bytes, where: str, number: int = -1) -> Plant:
    def plant(forgery: Forgery) -> None:
        archive = forgery.archive(number)
        parts = {"front": entry + archive, "end": archive[:-1024] + entry + archive[-1024:], "behind": archive + entry}
        forgery.put_archive(parts[where], number)

    return plant


def _edit(change: Callable[[bytes], bytes], number: int = -1) -> Plant:
    def plant(forgery: Forgery) -> None:
        forgery.put_archive(change(forgery.archive(number)), number)

    return plant


def _rewrite(change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None], number: int = -1) -> Plant:
    """Has Python's tarfile write the archive again with its members changed."""

    def edit(data: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [(one, file.read() if (file := archive.extractfile(one)) else b"") for one in archive]
        change(members)
        blocks = [one.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512) for one, data in members]
        return b"".join(blocks) + bytes(1024)

    return _edit(edit, number)


def _set(name: str, value: Any) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    return lambda members: setattr(next(one for one, data in members if data), name, value)


EDITS: dict[str, Plant] = {
    "other code": _edit(lambda data: data.replace(b'print("training")', b'print("attacks!")')),
    "other wheel": _edit(lambda data: data.replace(b"__version__ = '2.15.1'", b"__version__ = '2.15.2'"), 2),
    "other bytecode": _edit(lambda data: data.replace(b"2.15.1", b"2.15.2"), 3),
    "mode": _rewrite(_set("mode", 0o777)),
    "owner": _rewrite(_set("uid", 1000)),
    "time": _rewrite(_set("mtime", 0)),
    "name": _rewrite(_set("name", "app/trainer/other.py")),
    "an entry less": _rewrite(lambda members: members.__delitem__(-1)),
    "order": _rewrite(lambda members: members.reverse()),
    "no byte": _edit(lambda _: b""),
    "a longer end": _edit(lambda data: data + bytes(512)),
    "no end": _edit(lambda data: data[:-1024]),
    "cut in an entry": _edit(lambda data: data[:700]),
}


def _gzip(data: bytes, **parts: Any) -> bytes:
    """A gzip stream with parts of its header and trailer as given."""
    engine = zlib.compressobj(parts.get("level", 6), zlib.DEFLATED, -15)
    body = engine.compress(data) + engine.flush()
    head = b"\x1f\x8b" + bytes([parts.get("method", 8), parts.get("flags", 0)]) + bytes(6) + parts.get("more", b"")
    trailer = parts.get("crc", zlib.crc32(data)), parts.get("size", len(data))
    return bytes(head + body + struct.pack("<II", *trailer))


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "empty": lambda _: b"",
    "zstd": zstd.compress,
    "skipped frame": lambda data: b"\x50\x2a\x4d\x18\4\0\0\0evil" + zstd.compress(data),
    "long name": lambda data: _gzip(data, flags=8, more=b"x" * 600 + b"\0"),
    "extra field": lambda data: _gzip(data, flags=4, more=b"\2\0xx"),
    "unknown flags": lambda data: _gzip(data, flags=0xE0),
    "wrong sum": lambda data: _gzip(data, crc=1),
    "two members": lambda data: _gzip(data[:600]) + _gzip(data[600:]),
    "an empty member more": lambda data: _gzip(data) + _gzip(b""),
    "a member more": lambda data: _gzip(data) + _gzip(_EVIL),
    "tail": lambda data: _gzip(data) + b"tail",
    "cut": lambda data: _gzip(data)[:-9],
    "damaged": lambda data: _gzip(data)[:60] + b"\xff\xff" + _gzip(data)[62:],
    "bomb": lambda data: gzip.compress(data + bytes(100 << 20), 1),
}


def _stream(change: Callable[[bytes], bytes]) -> Plant:
    return lambda forgery: forgery.put_stream(change(forgery.archive()))


def _arrange(order: list[int], *, diff_ids: bool = True) -> Plant:
    def plant(forgery: Forgery) -> None:
        forgery.manifest["layers"] = [forgery.layers[number] for number in order]
        if diff_ids:
            forgery.config["rootfs"]["diff_ids"] = [forgery.diff_ids[number] for number in order]

    return plant


def _of_the_parameter_server(forgery: Forgery) -> None:
    other = Forgery(forgery.world, Role.PS)
    forgery.manifest, forgery.config = other.manifest, other.config
    forgery.manifest["layers"] = [dict(row) for row in other.layers]


def _base_again(forgery: Forgery) -> None:
    """The base's own layer, in another compression."""
    forgery.layers[0] |= forgery.world.put_blob(gzip.compress(forgery.archive(0), 9, mtime=1))


def _add(archive: bytes, at: int | None = None, **more: Any) -> Plant:
    return lambda forgery: forgery.add_layer(archive + bytes(1024), at, **more)


def _held_and_whited_out(forgery: Forgery) -> None:
    """As S1-3: a layer puts a file of the base, the next one takes it away."""
    forgery.add_layer(header("usr/lib/data", data=b"1") + bytes(1024))
    forgery.add_layer(header("usr/lib/.wh.data") + bytes(1024))


def _zstd_typed(forgery: Forgery) -> None:
    forgery.put_stream(zstd.compress(forgery.archive()))
    forgery.layers[-1]["mediaType"] = OCI_LAYER_ZSTD


def _too_many(forgery: Forgery) -> None:
    for number in range(132):
        forgery.add_layer(header(f"app/{number}", data=b"1") + bytes(1024))


PLACES: dict[str, Plant] = {
    "base twice": _arrange([0, 0, 1, 2, 3, 4]),
    "base last": _arrange([1, 2, 3, 4, 0]),
    "base gone": _arrange([1, 2, 3, 4]),
    "swapped": _arrange([0, 2, 1, 3, 4]),
    "swapped, the config not": _arrange([0, 2, 1, 3, 4], diff_ids=False),
    "code below": _arrange([0, 4, 1, 2, 3]),
    "code gone": _arrange([0, 1, 2, 3]),
    "one twice, one gone": _arrange([0, 1, 1, 3, 4]),
    "the base alone": _arrange([0]),
    "base compressed otherwise": _base_again,
    "the image of another role": _of_the_parameter_server,
    "a layer of the base's bytes as code": lambda forgery: forgery.put_archive(forgery.archive(0)),
    "a layer more": _add(_EVIL),
    "a layer more, above the base": _add(_EVIL, 1),
    "an empty layer more": _add(b""),
    "a foreign layer": _add(_EVIL, mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"),
    "a layer elsewhere": _add(_EVIL, urls=["https://example.com/evil"]),
    "held and whited out": _held_and_whited_out,
    "zstd with its type": _zstd_typed,
    "137 layers": _too_many,
}


def layer_faults() -> Mapping[str, Plant]:
    """Every fault: each entry at the front, at the end or behind it, of the code or of a layer of wheels."""
    wheres = ("front", "end", "behind")
    faults = {
        f"entry {wheres[number % 3]}: {name}": _insert(entry, wheres[number % 3], -1 if number % 2 else 1)
        for number, (name, entry) in enumerate(ENTRIES.items())
    }
    faults |= {f"edit: {name}": plant for name, plant in EDITS.items()}
    faults |= {f"stream: {name}": _stream(change) for name, change in STREAMS.items()}
    return faults | {f"place: {name}": plant for name, plant in PLACES.items()}
