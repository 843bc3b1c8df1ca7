"""What a wheel's files have to do with the rules of trimming: which files a rule is about, and which they name."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from training_imgtool.core.errors import VerificationError
from training_imgtool.versions.trim_rules import TOKENS, named_in_elf, named_in_source, owned_by, rule_of

RULES = 2
"""Counts up when the same wheel is read in another way: what a machine remembers is of one count."""
ELF = b"\x7fELF"
ALWAYS = ""
"""The rule of files that no rule is about: they stay."""
_SOURCES = (".py", ".pyx", ".pth")
_SCRIPT = re.compile(r"[^/]+\.data/scripts/")
_INSTALLED = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
_BLOCK = 1 << 20
_OVERLAP = max(map(len, TOKENS)) - 1
_LARGEST_SOURCE = 64 << 20  # bytes; a longer one is read to here


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelContents:
    """One wheel, as far as trimming is concerned.

    Attributes:
        paths: what rules are about: bytes and the rule's name, by path below site-packages.
        names: the names of the rules whose files this wheel's files may open, by the rule that those files are
            themselves subject to, or `ALWAYS`.
    """

    paths: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        return {
            "paths": {path: [size, rule] for path, (size, rule) in sorted(self.paths.items())},
            "names": {rule: sorted(names) for rule, names in sorted(self.names.items())},
        }


def contents_of(data: Any) -> WheelContents | None:
    """What `as_data` made; None for anything else."""
    try:
        paths = {str(path): (int(size), str(rule)) for path, (size, rule) in data["paths"].items()}
        names = {str(rule): frozenset(map(str, names)) for rule, names in data["names"].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return WheelContents(paths=paths, names=names)


def read_contents(path: Path, package: str) -> WheelContents:
    """Reads every ELF file and every Python source of a wheel.

    Args:
        path: the wheel.
        package: its name, normalised.

    Raises VerificationError when it is damaged.
    """
    paths: dict[str, tuple[int, str]] = {}
    names: dict[str, set[str]] = {}
    own = owned_by(package)
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                place = rule_of(_INSTALLED.sub("", member.filename, count=1))
                rule = ALWAYS
                if place:
                    rule, top = place[0].name, place[1]
                    paths[top] = (paths.get(top, (0, rule))[0] + member.file_size, rule)
                with archive.open(member) as stream:
                    names.setdefault(rule, set()).update(names_in(member.filename, _blocks(stream)) - own)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise VerificationError(f"{path.name}: damaged wheel: {error}", hint=f"remove {path}, run again") from error
    return WheelContents(
        paths=paths, names={rule: frozenset(paths_of_rule) for rule, paths_of_rule in names.items() if paths_of_rule}
    )


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The first block is short, since it is all that is read of most files."""
    yield stream.read(len(ELF))
    while block := stream.read(_BLOCK):
        yield block


def names_in(name: str, blocks: Iterable[bytes]) -> frozenset[str]:
    """The names of the rules whose files a file may open, when it is an ELF file or source code."""
    stream = iter(blocks)
    first = next(stream, b"")
    if first.startswith(ELF):
        return named_in_elf(_tokens(first, stream))
    if not name.endswith(_SOURCES) and not _SCRIPT.match(name):
        return frozenset()
    text = bytearray(first)
    for block in stream:
        if len(text) > _LARGEST_SOURCE:
            break
        text += block
    return named_in_source(bytes(text))


def _tokens(first: bytes, stream: Iterator[bytes]) -> frozenset[bytes]:
    present: set[bytes] = set()
    missing, window = set(TOKENS), first
    while window:
        hits = {token for token in missing if token in window}
        present |= hits
        missing -= hits
        block = next(stream, b"")
        window = window[-_OVERLAP:] + block if block else b""
    return frozenset(present)
