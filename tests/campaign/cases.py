"""What the campaign tries: bases with files in the way, and the instructions on top of them, from a seed."""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import random
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Entries = tuple[str, ...]
"""One layer: `PATH`, `PATH/ [MODE [UID [GID]]]`, `PATH -> TARGET`; see `tests.direct.tars`."""


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
    """A base and the text above it, without FROM."""

    name: str
    base: Base
    text: str
    packages: bool = False  # the wheels stage goes before, as in every template


_ROOT = {"etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"}


def archive(entries: Iterable[str], *, salt: int) -> bytes:
    """An archive of entries, each file with a content of its own."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for entry in (*entries, f"etc/campaign-{salt}"):
            path, _, target = entry.partition(" -> ")
            name, *numbers = path.split(" ")
            info = tarfile.TarInfo(name)
            data = b""
            if target:
                info.type, info.linkname = tarfile.SYMTYPE, target
            elif name.endswith("/"):
                info.type, info.mode = tarfile.DIRTYPE, int(numbers[0], 8) if numbers else 0o755
                info.uid, info.gid = (*map(int, numbers[1:]), 0, 0)[:2]
            elif ".wh." not in name:
                data = _ROOT.get(name, f"{salt} {name}").encode()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def write_context(folder: Path) -> None:
    """The build context of every case: files, folders, and names that are a file here and a folder there."""
    for name in ("a.txt", "b.txt", "run.sh", "d/x.txt", "d/sub/y.txt", "d/sub/deep/z.txt", "f/sub", "g/x.txt/inner"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "e").mkdir()
    (folder / "h").mkdir()
    for link, target in (("link-file", "a.txt"), ("link-dir", "d"), ("d/inner", "x.txt"), ("h/sub", "../a.txt")):
        (folder / link).symlink_to(target)


FOLDERS = ("app", "app/sub", "app/sub/deep", "opt", "srv", "srv/x.txt", "data", "real", "work", "etc/conf")
SOURCES = (
    "a.txt", "b.txt", "run.sh", "d", "d/", "d/sub", "e", "f", "g", "h", "link-file", "link-dir", "link-dir/x.txt",
    "d/inner", "*.txt", "d/*", "?.txt", "link-*", "a.txt b.txt", "d f", "a.txt d", "d/x.txt run.sh", "g/x.txt", "d/s*",
    "a.txt", "d", "link-dir", ".", "[ab].txt", "./d/../a.txt",
)  # fmt: skip
LINKS = ("/real", "/srv", "real", "/nowhere", "../data", "sub", "/app/sub")
ENDS = ("", "", "/", "/", "/.", "/sub", "/sub/", "/new", "/new/deep/", "/x.txt", "/x.txt/", "/sub/deep")
SMALL = (
    'ENV A=1 B="two words" C=$A', "ENV PATH=/x:$PATH", "LABEL a=b \"c d\"='e f'", "USER 7", "USER me:you", "USER root",
    "VOLUME /v", 'VOLUME ["/v", "/srv/"]', 'CMD ["a", "b"]', "CMD echo $A", 'ENTRYPOINT ["run"]',
    "ENTRYPOINT run it", "EXPOSE 80 443/udp", "EXPOSE 8000-8003", "STOPSIGNAL SIGINT", "STOPSIGNAL 9",
    'SHELL ["/bin/bash", "-c"]', "HEALTHCHECK NONE", "HEALTHCHECK CMD true", 'HEALTHCHECK --interval=5s CMD ["x"]',
    "HEALTHCHECK --retries=3 --timeout=1m CMD y z", "ARG X=1", "ARG X", "ENV E=", "LABEL e=", "ENV A=${A:-d}$B",
)  # fmt: skip
RARE = (
    "CMD []", "ENTRYPOINT []", "EXPOSE $A", "USER $A", "STOPSIGNAL ${A}", "WORKDIR $A", "VOLUME $A", "MAINTAINER me",
    "ONBUILD ENV o=1", "STOPSIGNAL BOGUS", "HEALTHCHECK --interval=0s CMD x", "HEALTHCHECK --retries=0 CMD x",
    "HEALTHCHECK NONE x", 'VOLUME [""]', "CMD", "WORKDIR /w/$NONE", "COPY --chown=1 --chown=2 a.txt /q",
)  # fmt: skip


def random_base(chance: random.Random) -> Base:
    """A base of one to three layers."""
    layers = tuple(_layer(chance, upper=number > 0) for number in range(chance.choice((1, 1, 2, 3))))
    folders = [entry.partition("/ ")[0] for entry in layers[-1] if "/ " in entry]
    choices: dict[str, list[Any]] = {
        "Env": [["PATH=/usr/bin:/bin", "A=base"], ["A=/srv"], None],
        "WorkingDir": ["/nowhere/at/all", "", *[None] * 8, *(f"/{name}" for name in folders)],
        "User": ["7", "me", "", None, None, None],
        "Volumes": [{"/srv": {}}, {"/data/": {}, "/v": {}}, None, None, None, None],
        "Healthcheck": [{"Test": ["CMD", "true"], "Interval": 9_000_000_000}, {"Test": ["NONE"]}, None, None],
        "OnBuild": [["ENV b=1"], *[None] * 29],
        "Cmd": [["python3"], ["sh", "-c", "x"], None],
        "Entrypoint": [["entry"], None, None],
        "Labels": [{"a": "base", "z": "1"}, None],
        "ExposedPorts": [{"1/tcp": {}}, None],
        "StopSignal": ["SIGKILL", None, None],
        "Shell": [["/bin/ash", "-c"], None, None, None],
    }
    settings = {key: chance.choice(values) for key, values in choices.items()}
    return Base(layers, {key: value for key, value in settings.items() if value is not None})


def _layer(chance: random.Random, *, upper: bool) -> Entries:
    """Entries in an order that archives have: folders first, nothing below what is no folder in the same layer."""
    entries, ends = ["etc/"], set[str]()
    if not upper and chance.random() < 0.9:
        entries += ["etc/passwd", "etc/group"]
    for path in FOLDERS:
        if chance.random() < 0.45 or any(f"{path}/".startswith(f"{end}/") for end in ends):
            continue
        above = path.rpartition("/")[0]
        if above and not any(entry.startswith(f"{above}/ ") for entry in entries) and chance.random() < 0.9:
            continue
        kind = chance.choice(("folder", "folder", "folder", "owned", "owned", "file", "link", "gone"))
        if kind == "gone" and upper:
            entries.append(f"{above}/.wh.{posixpath.basename(path)}".lstrip("/"))
            ends.add(path)
        elif kind == "file":
            entries.append(path)
            ends.add(path)
        elif kind == "link":
            entries.append(
                f"{path} -> {chance.choice(('/real', '/srv', 'real', '/nowhere', '../data', 'sub', '/app/sub'))}"
            )
            ends.add(path)
        else:
            mode = chance.choice(("700", "750", "777", "1777", "2755", "555")) if kind == "owned" else "755"
            owner = chance.choice((" 5 5", " 7 8", " 0 9", "")) if kind == "owned" else ""
            entries.append(f"{path}/ {mode}{owner}")
            if upper and chance.random() < 0.1:
                entries.append(f"{path}/.wh..wh..opq")
            elif chance.random() < 0.3:
                entries.append(f"{path}/{chance.choice(('old.py', 'x.txt', 'sub', 'keep'))}")
                ends.add(f"{path}/{entries[-1].rpartition('/')[2]}")
    return tuple(dict.fromkeys(entries))


def random_text(chance: random.Random) -> str:
    """One to five instructions."""
    makers = (
        (_copy,) * 9 + (_workdir,) * 3 + (lambda chance: chance.choice(SMALL if chance.random() < 0.9 else RARE),) * 3
    )
    return "".join(f"{chance.choice(makers)(chance)}\n" for _ in range(chance.choice((1, 2, 3, 3, 4, 5))))


def _small(chance: random.Random) -> str:
    return chance.choice(SMALL if chance.random() < 0.9 else RARE)


def _copy(chance: random.Random) -> str:
    name = chance.choice(("COPY",) * 9 + ("ADD",))
    owner = chance.choice(("",) * 7 + ("--chown=7 ", "--chown=7:8 ", "--chown=0:5 ", "--chown=root ", "--chown=0 "))
    source = chance.choice(SOURCES)
    target = (
        chance.choice((".", "./", "sub", "sub/", "..", "/", "/fresh", "/fresh/", "/fresh/deep/"))
        if (chance.random() < 0.25)
        else f"/{chance.choice(FOLDERS)}{chance.choice(ENDS)}"
    )
    if (" " in source or "*" in source) and chance.random() < 0.8:
        target = f"{target.rstrip('/')}/"
    if chance.random() < 0.1:
        return f"{name} {owner}{json.dumps([*source.split(' '), target])}"
    return f"{name} {owner}{source} {target}"


def _workdir(chance: random.Random) -> str:
    places = ("sub", "..", "/", "new/deep", f"/{chance.choice(FOLDERS)}", "/fresh", "$A", "/app/x.txt", "/fresh/")
    return f"WORKDIR {chance.choice(places)}"


def random_cases(seed: int, count: int, *, bases: int = 4) -> list[Case]:
    """`count` cases; each base is used for `bases` of them."""
    cases = []
    base = random_base(random.Random(f"{seed} base"))
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        if number % bases == 0:
            base = random_base(chance)
        cases.append(Case(f"{seed}/{number}", base, random_text(chance)))
    return cases
