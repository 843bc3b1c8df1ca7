"""COPY and ADD of files from the context: which paths with which mode and owner a layer of it has.

The rules are the Dockerfile reference's: a folder's contents go into the destination, several sources or
a trailing slash mean a folder, what is made on the way has mode 755.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import partial

from training_imgtool.context import gomatch
from training_imgtool.context.context import Context
from training_imgtool.context.entries import Entry as Source
from training_imgtool.context.entries import Kind as SourceKind
from training_imgtool.context.entries import blocks
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.filesystem import Attributes, Folders, parents
from training_imgtool.direct.layers.layers import FOLDER_MODE, folder_item, in_order
from training_imgtool.direct.layers.splice import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind
from training_imgtool.dockerfile.evaluate import Evaluated

_FLAGS = frozenset({"chown", "chmod", "link"})
_OWNER = re.compile(r"(?P<user>\d+|root)(?::(?P<group>\d+|root))?\Z")
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_USTAR_AT = 257


@dataclass(frozen=True, slots=True)
class Copied:
    """A layer's items in order with the hashes of their contents, and the folders that it makes (absolute)."""

    items: tuple[Item, ...]
    hashes: tuple[str, ...]
    folders: dict[str, Attributes]


@dataclass(frozen=True, slots=True)
class _Given:
    """What the flags say: a mode instead of the context's, and the owner."""

    mode: int | None
    uid: int
    gid: int


def copied(step: Evaluated, context: Context, folders: Folders, working: str) -> Copied:
    """What one COPY or ADD puts where.

    Raises:
        NeedsEngineError: it depends on what the base has, or on a feature that only engines have.
        InputError: a source is not in the context.
    """
    given = _given(step)
    found = [entry for source in step.words[:-1] for entry in _roots(context, source)]
    target = posixpath.normpath(posixpath.join("/", working, step.words[-1]))
    into = step.words[-1].endswith(("/", "/.")) or step.words[-1] == "." or folders.known(target) is not None
    if len(found) > 1 and not into and any(entry.kind is not SourceKind.DIRECTORY for entry in found):
        raise NeedsEngineError(f"line {step.instruction.line}: several sources need a destination that ends with /")
    if given.mode is not None and any(entry.kind is SourceKind.DIRECTORY for entry in found):
        raise NeedsEngineError(f"line {step.instruction.line}: --chmod of folders is for an engine")
    placed: dict[str, Source] = {}
    for entry in found:
        placed |= _placed(step, context, entry, target, into=into, folders=folders)
    if not placed:
        raise NeedsEngineError(f"line {step.instruction.line}: {step.name} takes nothing: there is no empty layer")
    return _layer(placed, folders, given)


def _given(step: Evaluated) -> _Given:
    unknown = set(step.flags) - _FLAGS
    if unknown or step.instruction.heredocs:
        what = f"--{min(unknown)}" if unknown else "with a heredoc"
        raise NeedsEngineError(f"line {step.instruction.line}: {step.name} {what} is for an engine")
    chmod, chown = step.flags.get("chmod"), step.flags.get("chown")
    if chmod and not re.fullmatch("0?[0-7]{3,4}", chmod):
        raise NeedsEngineError(f"line {step.instruction.line}: --chmod={chmod}: only octal modes are known here")
    owner = _OWNER.match(chown) if chown else None
    if chown and not owner:
        raise NeedsEngineError(f"line {step.instruction.line}: --chown={chown}: only an engine knows the base's users")
    user = owner["user"] if owner else "0"
    group = (owner["group"] if owner else None) or user
    return _Given(int(chmod, 8) if chmod else None, *(0 if name == "root" else int(name) for name in (user, group)))


def _roots(context: Context, source: str) -> list[Source]:
    """The entries that a source names: itself, or each match of a pattern; the root as a folder."""
    path = posixpath.normpath(source.lstrip("/") or ".")
    chosen = context.select((source,))  # says what is wrong where nothing is found
    if path == ".":
        return [Source(path="", kind=SourceKind.DIRECTORY, mode=FOLDER_MODE)]
    if not gomatch.has_wildcards(path):
        return [chosen.entry(path)]
    pattern = gomatch.compiled(path)
    return [entry for entry in chosen.entries if pattern.match(entry.path)]


def _placed(
    step: Evaluated, context: Context, entry: Source, target: str, *, into: bool, folders: Folders
) -> dict[str, Source]:
    if entry.kind is SourceKind.DIRECTORY:
        prefix = f"{entry.path}/" if entry.path else ""
        inside = {
            posixpath.join(target, one.path.removeprefix(prefix)): one
            for one in context.entries
            if one.path.startswith(prefix) and one.path != entry.path
        }
        return {target: Source(path=entry.path, kind=entry.kind, mode=FOLDER_MODE), **inside}
    if step.name == "ADD" and _is_archive(entry):
        raise NeedsEngineError(f"line {step.instruction.line}: ADD unpacks {entry.path}: that is for an engine")
    if into:
        return {posixpath.join(target, posixpath.basename(entry.path)): entry}
    above = target.rpartition("/")[0]
    if above not in folders.made:
        raise NeedsEngineError(
            f"line {step.instruction.line}: whether {target} is a folder in the base is not known",
            hint="end the destination with / when it is a folder",
        )
    return {target: entry}


def _is_archive(entry: Source) -> bool:
    if entry.path.endswith((".tar", ".tgz", ".tbz2", ".txz", ".tzst")):
        return True
    head = next(blocks(entry), b"") if entry.kind is SourceKind.FILE and entry.origin is not None else b""
    return head.startswith(_ARCHIVES) or head[_USTAR_AT : _USTAR_AT + 5] == b"ustar"


def _layer(placed: dict[str, Source], folders: Folders, given: _Given) -> Copied:
    made: dict[str, Attributes] = {}
    items: dict[str, Item] = {}
    for path, source in placed.items():
        folders.check(path)
        if source.kind is SourceKind.DIRECTORY:
            _make(path, folders, given, made, items)
            continue
        items[path] = _item(path, source, given)
    for folder in [parent for path in placed for parent in parents(path) if parent not in placed]:
        if (given.uid or given.gid) and folders.known(folder) is None:
            raise NeedsEngineError(
                f"{folder}: who owns a folder that COPY --chown makes on its way depends on the builder"
            )
        _make(folder, folders, given, made, items)
    ordered = tuple(in_order(items.values()))
    hashes = {path.strip("/"): source.sha256 or "" for path, source in placed.items()}
    return Copied(ordered, tuple(hashes.get(item.entry.path, "") for item in ordered), made)


def new_folder(path: str, folders: Folders) -> Copied:
    """The layer in which WORKDIR makes `path`; raises NeedsEngineError as `copied` does."""
    given = _Given(None, 0, 0)
    folders.check(path)
    made: dict[str, Attributes] = {}
    items: dict[str, Item] = {}
    for folder in (*parents(path), path):
        _make(folder, folders, given, made, items)
    ordered = tuple(in_order(items.values()))
    return Copied(ordered, ("",) * len(ordered), made)


def _make(path: str, folders: Folders, given: _Given, made: dict[str, Attributes], items: dict[str, Item]) -> None:
    """A folder of the layer: as it is known where the base or a layer has it, else new.

    Docker's overlay driver gives a folder that a layer only implies mode 755 and owner 0, so those that have
    another one, and those that were made here, are carried along; the base's plain ones are not.
    """
    if path in items or path == "/":
        return
    known = folders.known(path)
    if known is None:
        folders.check_new(path)
        known = made[path] = Attributes(FOLDER_MODE, given.uid, given.gid)
    elif path not in folders.made and known.mode == FOLDER_MODE:
        return
    items[path] = folder_item(path.strip("/"), known.mode, known.uid, known.gid)


def _item(path: str, source: Source, given: _Given) -> Item:
    kinds = {SourceKind.FILE: Kind.FILE, SourceKind.DIRECTORY: Kind.FOLDER, SourceKind.SYMLINK: Kind.LINK}
    kind = kinds[source.kind]
    entry = Entry(
        path=path.strip("/"),
        kind=kind,
        mode=source.mode if given.mode is None or kind is Kind.LINK else given.mode,
        size=source.size if kind is Kind.FILE else 0,
        target=source.target or "",
        uid=given.uid,
        gid=given.gid,
    )
    return Item(entry, blocks=partial(blocks, source) if kind is Kind.FILE else None)
