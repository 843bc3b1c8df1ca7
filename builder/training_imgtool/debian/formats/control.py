"""Debian control data (deb822): reading stanzas, and writing them as dpkg writes its database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from training_imgtool.core.errors import VerificationError

Stanza = dict[str, str]
"""Fields by their name as written; a value keeps its line breaks and the blank that begins a further line."""

# The order of dpkg's `fieldinfos` (lib/dpkg/parse.c); all other fields follow as the package has them.
_ORDER = tuple(
    name
    for line in (
        "Package,Essential,Protected,Status,Priority,Section,Installed-Size,Origin,Maintainer,Bugs,Architecture",
        "Multi-Arch,Source,Version,Config-Version,Replaces,Provides,Depends,Pre-Depends,Recommends,Suggests",
        "Breaks,Conflicts,Enhances,Conffiles,Description,Triggers-Pending,Triggers-Awaited",
    )
    for name in line.split(",")
)
_RANK = {name.lower(): number for number, name in enumerate(_ORDER)}
_NAMES = {name.lower(): name for name in _ORDER}


def parse_stanzas(text: str) -> Iterator[Stanza]:
    """The stanzas of a control file; raises VerificationError for a line that is none of it."""
    stanza: Stanza = {}
    name = ""
    for line in text.split("\n"):
        if not line.strip():
            if stanza:
                yield stanza
            stanza, name = {}, ""
        elif line[0] in " \t":
            if not name:
                raise VerificationError(f"no Debian control data: {line[:60]!r}")
            stanza[name] += f"\n{line}"
        elif not line.startswith("#"):
            key, colon, value = line.partition(":")
            name = _NAMES.get(key.lower(), key)
            if not colon or not key.strip() or name in stanza:
                raise VerificationError(f"no Debian control data: {line[:60]!r}")
            stanza[name] = value.lstrip()
    if stanza:
        yield stanza


def format_stanza(stanza: Mapping[str, str]) -> str:
    """A stanza as dpkg writes it into its status file, with the blank line that ends it."""
    names = sorted(stanza, key=lambda name: _RANK.get(name.lower(), len(_ORDER)))  # the sort is stable
    lines = (f"{name}:{'' if stanza[name].startswith(chr(10)) else ' '}{stanza[name]}\n" for name in names)
    return "".join((*lines, "\n"))


def format_status(stanzas: Mapping[tuple[str, str], Mapping[str, str]]) -> bytes:
    """The text of /var/lib/dpkg/status: every package by its name and architecture, sorted as dpkg sorts."""
    return "".join(format_stanza(stanzas[key]) for key in sorted(stanzas)).encode()
