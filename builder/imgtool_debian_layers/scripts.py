"""Finds what the maintainer scripts that imgtool knows do to an image, which is often nothing.

imgtool runs no script. `scripts.toml` lists blocks that debhelper generates. imgtool knows a script if it consists of
such blocks and comments, or if `scripts.toml` lists the sha256 of the rest of the script. If a package has any other
script, apt itself has to install the package.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from typing import Any

from imgtool_debian_layers.errors import NeedsAptError

_BLOCK = re.compile(
    r"^# Automatically added by (?P<helper>[\w-]+)(?:/\S+)?\n(?P<body>.*?)^# End automatically added section\n?",
    re.DOTALL | re.MULTILINE,
)
_TRIVIAL = re.compile(r"#!.*|set -eu?|:|true")
_PYTHON = re.compile(r"\b(libpython|python)3\.(\d+)")
AT_INSTALL = ("preinst", "postinst", "config")
"""The scripts that run when a package is installed for the first time."""


class EffectKind(StrEnum):
    """What an effect does to the effect's path."""

    ABSENT = "absent"  # if anything matches the pattern `path`, apt has to run the script
    PRESENT = "present"  # if the path is missing, apt has to run the script
    FOLDER = "folder"
    LOCAL_FOLDER = "local-folder"  # below /usr/local; root:staff owns it if the base says so (Debian Policy 9.1.2)
    LINK = "link"
    FILE = "file"
    COPY = "copy"  # copies the file `target` of a package
    APPEND = "append"  # appends `text` to a file of the base
    ALTERNATIVE = "alternative"  # update-alternatives --install `path` `name` `target` `priority`, with `slaves`
    LDCONFIG = "ldconfig"
    CERTIFICATES = "certificates"  # update-ca-certificates


@dataclass(frozen=True, slots=True)
class Effect:
    """One change that a script makes to an image, or a condition under which imgtool knows the changes.

    Attributes:
        kind: what it does.
        path: the path that it changes.
        target: the target of a link, or the source of a copy.
        mode: the mode of a folder or file.
        owner: `USER:GROUP`, as names of the base.
        text: the text of a file.
        keep: whether an entry that is already at the path stays.
        name: the name of a group of alternatives.
        priority: the priority of an alternative.
        slaves: the slaves of an alternative, as link, name and file.
    """

    kind: EffectKind
    path: str = ""
    target: str = ""
    mode: int = 0
    owner: str = "root:root"
    text: str = ""
    keep: bool = False
    name: str = ""
    priority: int = 0
    slaves: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Rules:
    blocks: tuple[tuple[str, re.Pattern[str], tuple[Effect, ...]], ...]
    scripts: Mapping[str, tuple[Effect, ...]]
    triggers: Mapping[tuple[str, str], tuple[Effect, ...]]
    data: tuple[re.Pattern[str], ...]


def find_script_effects(package: str, name: str, data: bytes) -> tuple[Effect, ...]:
    """Finds what a script does when dpkg installs the script's package for the first time.

    Args:
        package: the package's name, for the message.
        name: `preinst`, `postinst` or `config`.
        data: the script.

    Raises NeedsAptError, with the package and the script, for a script that is not known.
    """
    rules = _load_rules()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NeedsAptError(f"{package}: its {name} script is not text") from error
    effects: list[Effect] = []
    rest = _BLOCK.sub(lambda block: _take_block(block, rules, effects), text)
    digest, python = hash_script(rest)
    if not digest:
        return tuple(effects)
    if digest not in rules.scripts:
        raise NeedsAptError(f"the package {package} has a {name} script that imgtool does not know")
    return (*effects, *(_insert_python(effect, python) for effect in rules.scripts[digest]))


def hash_script(rest: str) -> tuple[str, str]:
    """Hashes a script without its generated blocks (`rest`); also returns the minor version of Python in the script.

    Before hashing, `@` replaces the minor version, because the scripts of different Pythons differ only in that number,
    and `DATA` replaces lines that only list data. If the rest contains no command, the hash is empty.
    """
    lines = normalise(rest)
    if lines and lines[-1].strip() == "exit 0":
        lines.pop()
    if not lines:
        return "", ""
    text = "\n".join("DATA" if any(rule.fullmatch(line) for rule in _load_rules().data) else line for line in lines)
    minors = {match[2] for match in _PYTHON.finditer(text)}
    python = minors.pop() if len(minors) == 1 else ""
    if python:
        text = _PYTHON.sub(r"\g<1>3.@", text)
    return hashlib.sha256(text.encode()).hexdigest(), python


def _insert_python(effect: Effect, python: str) -> Effect:
    return replace(effect, path=effect.path.replace("@", python)) if python else effect


def find_trigger_effects(package: str, trigger: str) -> tuple[Effect, ...]:
    """Finds what a package's postinst does for a trigger; raises NeedsAptError if imgtool does not know the trigger."""
    effects = _load_rules().triggers.get((package, trigger))
    if effects is None:
        raise NeedsAptError(f"the trigger {trigger} runs the postinst script of {package}, which imgtool does not know")
    return effects


def normalise(text: str) -> list[str]:
    """Returns a script's lines without those that do nothing. Keeps comments if they may be part of a here-document."""
    plain = "<<" not in text
    return [
        line
        for line in map(str.rstrip, text.splitlines())
        if line and not _TRIVIAL.fullmatch(line.strip()) and not (plain and line.lstrip().startswith("#"))
    ]


def _take_block(block: re.Match[str], rules: _Rules, effects: list[Effect]) -> str:
    """Removes a known block and adds the block's effects to `effects`; keeps an unknown block."""
    body = "\n".join(normalise(block["body"]))
    for helper, pattern, does in rules.blocks:
        if helper == block["helper"] and pattern.fullmatch(body):
            effects.extend(does)
            return ""
    return f"{block['helper']}\n{block['body']}"


def hash_table() -> str:
    """Hashes `scripts.toml`, because its content decides the bytes of layers."""
    return hashlib.sha256(_read_table()).hexdigest()


@functools.cache
def _read_table() -> bytes:
    return files("imgtool_debian_layers").joinpath("scripts.toml").read_bytes()


@functools.cache
def _load_rules() -> _Rules:
    document = tomllib.loads(_read_table().decode())
    return _Rules(
        blocks=tuple((row["helper"], re.compile(_read_pattern(row)), _read_effects(row)) for row in document["block"]),
        scripts={digest: _read_effects(row) for row in document["script"] for digest in row["sha256"]},
        triggers={(row["package"], row["trigger"]): _read_effects(row) for row in document["trigger"]},
        data=tuple(re.compile(row["pattern"]) for row in document["data"]),
    )


def _read_pattern(row: Mapping[str, Any]) -> str:
    return "\n".join(normalise(str(row["pattern"])))


def _read_effects(row: Mapping[str, Any]) -> tuple[Effect, ...]:
    return tuple(
        Effect(**{**effect, "kind": EffectKind(effect["kind"]), "slaves": tuple(map(tuple, effect.get("slaves", ())))})
        for effect in row.get("effects", ())
    )
