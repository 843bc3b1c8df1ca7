"""What the sources of COPY and ADD name in the build context: entries, links followed."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from training_imgtool.context import gomatch
from training_imgtool.context.context import Context
from training_imgtool.context.entries import Entry, Kind, blocks
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.files import list_parents
from training_imgtool.direct.layers.layers import FOLDER_MODE
from training_imgtool.direct.layers.tarhead import BLOCK

_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_CHECKSUM = slice(148, 156)  # in a tar header, which every version of tar has


@dataclass(frozen=True, slots=True)
class CopySource:
    """What COPY takes: the entry, links followed, the name that it was found by, and what lies below it."""

    name: str
    entry: Entry
    chosen: Context


def copy_sources(context: Context, word: str) -> list[CopySource]:
    """What a source names: itself, or each match of a pattern; the root as a folder."""
    path = posixpath.normpath(word.lstrip("/") or ".")
    chosen = context.select((word,))
    if any(entry.kind is Kind.FILE and entry.origin is None for entry in chosen.entries):
        raise NeedsEngineError(f"{word}: wheels as files, which only an engine's context has")
    if path == ".":
        return [CopySource("", Entry(path="", kind=Kind.DIRECTORY, mode=FOLDER_MODE), chosen)]
    pattern = gomatch.compile_pattern(path) if gomatch.has_wildcards(path) else None
    if pattern and path != word.removeprefix("./").lstrip("/"):
        raise NeedsEngineError(f"{word}: engines differ in how they clean a pattern")
    names = [entry.path for entry in context.entries if pattern.match(entry.path)] if pattern else [path]
    present = set(chosen.paths())
    return [_read_source(name, context, chosen) for name in names if name in present or not pattern]


def _read_source(name: str, context: Context, chosen: Context) -> CopySource:
    real = context.resolve(name)
    for above in (*list_parents(f"/{name}"), f"/{name}"):
        if name and not context.resolve(above[1:]):
            raise NeedsEngineError(f"{above[1:]}: engines differ in whether they follow a link to the context's root")
    try:
        return CopySource(posixpath.basename(name), chosen.entry(real), chosen)
    except KeyError:
        raise NeedsEngineError(f"{name}: a link to {real}, which is not in the build context") from None


def is_archive(entry: Entry) -> bool:
    """Whether ADD unpacks a file: by its name or its first bytes."""
    if entry.path.endswith((".tar", ".tgz", ".tbz2", ".txz", ".tzst")):
        return True
    head = next(blocks(entry), b"") if entry.kind is Kind.FILE and entry.origin is not None else b""
    return head.startswith(_ARCHIVES) or _is_tar(head[:BLOCK])


def _is_tar(header: bytes) -> bool:
    number = header[_CHECKSUM].split(b"\0")[0].strip()
    if len(header) < BLOCK or not number.isdigit() or number.strip(b"01234567"):
        return False
    rest = header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :]
    return int(number, 8) in {sum(rest), sum(rest) - 256 * sum(byte > 127 for byte in rest)}
