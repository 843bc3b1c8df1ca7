"""What the campaign tries: a base image, and a Dockerfile's text on top of it."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Entries = tuple[str, ...]
"""One layer: `PATH [MODE [UID [GID]]]`, `PATH/ …` for a folder, `PATH -> TARGET`, `PATH => TARGET` for a hard link,
`PATH |` for a FIFO, `PATH #` for a device, `PATH ^` for a file with a capability; `%20` is a space."""


@dataclass(frozen=True, eq=False)
class Base:
    """An image to build on."""

    layers: tuple[Entries, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def archives(self) -> tuple[bytes, ...]:
        """The layers, uncompressed. The first has a file of its own, as Docker drops empty layers."""
        return tuple(archive(entries, salt=number) for number, entries in enumerate(self.layers))

    @cached_property
    def config(self) -> bytes:
        """The config, a JSON document."""
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in self.archives]
        document = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2020-01-01T00:00:00Z",
            "config": dict(self.settings),
            "rootfs": {"type": "layers", "diff_ids": digests},
            "history": [{"created": "2020-01-01T00:00:00Z", "created_by": "campaign"} for _ in digests],
        }
        return json.dumps(document, sort_keys=True).encode()

    @property
    def name(self) -> str:
        """Its first digits."""
        return hashlib.sha256(self.config).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Case:
    """A base and the text above it.

    Attributes:
        name: seed and number, or what the case is about.
        base: the image of FROM.
        text: the instructions of the last stage, without FROM.
        packages: whether the wheels stage goes before, as in every template.
        below: the instructions of a stage between the base and the last one.
        before: what stands before the first FROM.
        ignore: the number of the context's .dockerignore in `IGNORES`.
    """

    name: str
    base: Base
    text: str
    packages: bool = False
    below: str = ""
    before: str = ""
    ignore: int = 0


IGNORES = (
    "", "*.txt\n!a.txt\n", "d\n!d/sub\n", "**/x.txt\n", "w/*\n!w/two*\n", "*\n!d/sub/y.txt\n!run.sh\n",
    "# note\n\n/e \n./g\n", "d/**\n!d/sub/deep\n", "*\n!w\nw/*\n!w/two*\n!a.txt\n", "s/open\n**/deep\n!w/deep/deep\n",
    ".*\nlink-*\n", "d/sub/\n!d/sub/deep/z.txt\nm/?\n",
)  # fmt: skip
"""Texts of .dockerignore, each a context of its own."""
_ROOT = {"etc/passwd": "root:x:0:0::/:/bin/sh\nme:x:7:8::/:/bin/sh\n", "etc/group": "root:x:0:\nyou:x:8:\n"}
_KINDS = {"|": tarfile.FIFOTYPE, "#": tarfile.CHRTYPE, "^": tarfile.REGTYPE}
_CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0).decode("latin-1")  # cap_net_bind_service+ep


def archive(entries: Iterable[str], *, salt: int) -> bytes:
    """An archive of entries, each file with a content of its own."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in (*entries, f"etc/campaign-{salt}"):
            info = _member(entry)
            data = b""
            if info.isreg() and ".wh." not in info.name:
                data = _ROOT.get(info.name, f"{salt} {info.name}").encode()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _member(entry: str) -> tarfile.TarInfo:
    name, *rest = entry.split(" ")
    info = tarfile.TarInfo(unquote(name))
    if rest[:1] in (["->"], ["=>"]):
        info.type = tarfile.SYMTYPE if rest[0] == "->" else tarfile.LNKTYPE
        info.linkname = unquote(rest[1])
    elif rest[:1] and rest[0] in _KINDS:
        info.type = _KINDS[rest[0]]
        info.devmajor, info.devminor = 1, 3
        if rest[0] == "^":
            info.mode, info.pax_headers = 0o755, {"SCHILY.xattr.security.capability": _CAPABILITY}
    else:
        folder = name.endswith("/")
        info.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
        info.mode = int(rest[0], 8) if rest else 0o755 if folder else 0o644
        info.uid, info.gid = (*map(int, rest[1:]), 0, 0)[:2]
    return info


_FILES = (
    "a.txt", "b.txt", "run.sh", "d/x.txt", "d/sub/y.txt", "d/sub/deep/z.txt", "f/sub", "g/x.txt/inner", ".dot",
    "w/.dot", "w/two words/x y.txt", "w/ünï/é.txt", "w/[x].txt", "w/c,d=e", "w/q$A.txt", "w/-dash", "w/#hash",
    "w/empty", "w/_", f"w/{'/'.join(['deep'] * 30)}/x.txt", f"w/{'n' * 120}/{'m' * 130}.txt", "A.TXT", "w/x.tar",
    "s/program", "s/other", "s/back\\slash.txt", "s/one/two/three/four.txt", "s/ünï cödé/ß.txt", "m/a/b/c.txt",
    "m/b/c",
)  # fmt: skip
_CONTEXT_LINKS = (
    ("link-file", "a.txt"), ("link-dir", "d"), ("d/inner", "x.txt"), ("h/sub", "../a.txt"), ("w/gone", "nowhere"),
    ("w/up", ".."), ("w/chain", "../link-dir/sub"), ("link-link", "link-file"),
)  # fmt: skip


def write_context(folder: Path, ignore: str = "") -> None:
    """The build context of every case: files, folders, and names that are a file here and a folder there."""
    folder.mkdir()
    if ignore:
        (folder / ".dockerignore").write_text(f"{ignore}.dockerignore\n")  # of which Docker's CLI sends another text
    for name in _FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name.endswith("empty") else f"content of {name}\n")
    for name in ("run.sh", "s/program", "m/b/c"):
        (folder / name).chmod(0o755)
    for name in ("s/open", "s/empty", "s/empty/inner", "m/a/empty"):
        (folder / name).mkdir()
    (folder / "w/old-tar").write_bytes(_old_archive())
    (folder / "e").mkdir()
    (folder / "h").mkdir()
    (folder / "w/hard").hardlink_to(folder / "a.txt")
    (folder / "w/harder").hardlink_to(folder / "run.sh")
    for link, target in _CONTEXT_LINKS:
        (folder / link).symlink_to(target)


def _old_archive() -> bytes:
    """An archive as tar wrote it before POSIX: without a magic number, so that only the checksum tells."""
    header = bytearray(archive(("inner/",), salt=0)[:512])
    header[257:] = bytes(255)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + bytes(1024)


def random_cases(seed: int, count: int, *, bases: int = 4) -> list[Case]:
    """`count` cases; each base is used for `bases` of them."""
    from tests.campaign.bases import plain_base, random_base
    from tests.campaign.texts import plain_text, random_before, random_text

    cases = []
    base, plain = random_base(random.Random(f"{seed} base")), False
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        if number % bases == 0:
            plain = chance.random() < 0.5
            base = plain_base(chance) if plain else random_base(chance)
        text = plain_text if plain else random_text
        below = text(chance) if chance.random() < 0.15 else ""
        ignore = chance.randrange(len(IGNORES)) if chance.random() < 0.3 else 0
        before = "" if plain else random_before(chance)
        cases.append(Case(f"{seed}/{number}", base, text(chance), below=below, before=before, ignore=ignore))
    return cases
