"""Random bases: folders with owners and modes, links, hard links, devices, whiteouts, and settings."""

from __future__ import annotations

import posixpath
import random
from typing import Any

from tests.campaign.cases import Base, Entries

FOLDERS = (
    "app", "app/sub", "app/sub/deep", "opt", "srv", "srv/x.txt", "data", "real", "work", "etc/conf", "app/two%20words",
    "srv/ünï", "app/.dot",
)  # fmt: skip
_LINKS = (
    "/real",
    "/srv",
    "real",
    "/nowhere",
    "../data",
    "sub",
    "/app/sub",
    "../../srv",
    "/app/../data",
    ".",
    "/",
    "/real/",
)
_KINDS = ("folder",) * 3 + ("owned",) * 3 + ("file", "link", "gone", "fifo", "device", "hard", "capability")
_SMALL = ("old.py", "x.txt", "sub", "keep", ".dot", "é.txt", "b.txt", "a.txt 600 5 6", "run.sh 4755", "y.txt ^")


def random_base(chance: random.Random) -> Base:
    """A base of one to three layers."""
    layers = tuple(_layer(chance, upper=number > 0) for number in range(chance.choice((1, 1, 2, 3))))
    folders = [entry.partition("/ ")[0] for entry in layers[-1] if "/ " in entry and "%" not in entry]
    choices: dict[str, list[Any]] = {
        "Env": [
            ["PATH=/usr/bin:/bin", "A=base"], ["A=/srv"], ["PATH=", "D=d"], ["A=a b", "Q='q'", "PATH=/p", "A_B=$A"],
            ["B=a.txt", "B2=é", "X="], [], None,
        ],
        "WorkingDir": ["/nowhere/at/all", "", "app", "/app/", *[None] * 12, *(f"/{name}" for name in folders)],
        "User": ["7", "me", "0:5", "root:root", "", *[None] * 6],
        "Volumes": [{"/srv": {}}, {"/data/": {}, "/v": {}}, {"app": {}}, *[None] * 6],
        "Healthcheck": [{"Test": ["CMD", "true"], "Interval": 9_000_000_000}, {"Test": ["NONE"]}, None, None],
        "OnBuild": [["ENV b=1"], *[None] * 29],
        "Cmd": [["python3"], ["sh", "-c", "x"], [], None],
        "Entrypoint": [["entry"], [], None, None],
        "Labels": [{"a": "base", "z": "1"}, {"": "x"}, None, None],
        "ExposedPorts": [{"1/tcp": {}}, {"80": {}}, None, None],
        "StopSignal": ["SIGKILL", "9", None, None],
        "Shell": [["/bin/ash", "-c"], ["/bin/bash", "-euxc"], None, None, None],
        "ArgsEscaped": [True, *[None] * 9],
        "StopTimeout": [7, *[None] * 9],
        "Hostname": ["host", *[None] * 9],
    }  # fmt: skip
    settings = {key: chance.choice(values) for key, values in choices.items()}
    return Base(layers, {key: value for key, value in settings.items() if value is not None})


_PLAIN = (
    "app/",
    "app/sub/ 750 5 5",
    "srv/ 1777",
    "real/ 755 7 8",
    "data/ 700 0 9",
    "x/ 555",
    "x/y",
    "new/",
    "srv/sub/ 2755 5 5",
)
_PLAIN_LINKS = (
    "app/link -> /real",
    "app/link -> sub",
    "app/link -> ../real/.",
    "data/link -> ../app",
    "opt/l -> /app/link",
)


def plain_base(chance: random.Random) -> Base:
    """A base as people have them: few folders, links that lead somewhere, ordinary settings."""
    entries = [entry for entry in _PLAIN if chance.random() < 0.5]
    entries += [link for link in _PLAIN_LINKS if chance.random() < 0.3]
    named = {entry.partition(" ")[0]: entry for entry in ("etc/", "opt/", "etc/passwd", "etc/group", *entries)}
    folders = {name.rstrip("/") for name in named if name.endswith("/")}
    first = tuple(
        entry
        for name, entry in named.items()
        if name.rpartition("/")[0].strip("/") in {"", *folders} or name.endswith("/")
    )
    layers = [first]
    if chance.random() < 0.4:
        layers.append(
            tuple(
                {
                    e.partition(" ")[0]: e for e in ("etc/", "srv/ 755 3 3", "srv/.wh.sub", "more/", "more/f 4755")
                }.values()
            )
        )
    settings: dict[str, Any] = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"]}
    choices: dict[str, list[Any]] = {
        "Cmd": [["python3"], None], "Entrypoint": [["/entry"], None, None], "WorkingDir": ["/", "/etc", None],
        "Labels": [{"a": "base"}, None], "User": ["1000", None, None, None], "ExposedPorts": [{"53/tcp": {}}, None],
        "Healthcheck": [{"Test": ["NONE"]}, None, None], "Shell": [["/bin/bash", "-c"], None, None],
        "StopSignal": ["SIGINT", None],
    }  # fmt: skip
    settings |= {key: chosen for key, values in choices.items() if (chosen := chance.choice(values)) is not None}
    return Base(tuple(layers), settings)


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
        kind = chance.choice(_KINDS)
        if kind not in {"folder", "owned"} and (kind != "gone" or upper):
            entries.append(_leaf(chance, path, kind))
            ends.add(path)
        elif kind in {"folder", "owned"}:
            entries.append(f"{path}/ {_attributes(chance) if kind == 'owned' else '755'}")
            if upper and chance.random() < 0.1:
                entries.append(f"{path}/.wh..wh..opq")
            elif chance.random() < 0.3:
                entries.append(f"{path}/{chance.choice(_SMALL)}")
                ends.add(entries[-1].partition(" ")[0])
                if upper and chance.random() < 0.2:
                    entries.append(f"{path}/.wh.{chance.choice(('x.txt2', 'other', 'deep2'))}")
    return tuple({entry.partition(" ")[0].rstrip("/"): entry for entry in entries}.values())


def _leaf(chance: random.Random, path: str, kind: str) -> str:
    above = path.rpartition("/")[0]
    forms = {
        "gone": f"{above}/.wh.{posixpath.basename(path)}".lstrip("/"),
        "file": f"{path} {chance.choice(('644', '600 5 6', '4755', '755 7 8'))}",
        "link": f"{path} -> {chance.choice(_LINKS)}",
        "fifo": f"{path} |",
        "device": f"{path} #",
        "hard": f"{path} 600 1 2",
        "capability": f"{path} ^",
    }
    return forms[kind]


def _attributes(chance: random.Random) -> str:
    mode = chance.choice(("700", "750", "777", "1777", "2755", "555", "000", "3770"))
    return f"{mode}{chance.choice((' 5 5', ' 7 8', ' 0 9', ' 70000 2000000', ''))}"
