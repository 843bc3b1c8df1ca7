"""COPY and ADD of files from the context: which paths with which mode and owner a layer of it has.

The rules are those of Docker's classic builder (moby `builder/dockerfile/copy.go`, `pkg/archive`) and of BuildKit
(tonistiigi/fsutil `copy/copy.go`), where they agree: a folder's contents go into the destination, which keeps its owner
and mode when it is there; folders below it get the copied ones', there or not; what is made on the way has mode 755.
"""

from __future__ import annotations

import posixpath
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from training_imgtool.context import gomatch
from training_imgtool.context.context import Context
from training_imgtool.context.entries import Entry as Source
from training_imgtool.context.entries import Kind as SourceKind
from training_imgtool.context.entries import blocks
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.files import Files, list_parents
from training_imgtool.direct.layers.layers import FOLDER_MODE, make_folder_item
from training_imgtool.direct.layers.split import Contents
from training_imgtool.direct.layers.tar_writer import Item
from training_imgtool.direct.layers.tarhead import BLOCK, Entry
from training_imgtool.direct.layers.tarhead import Kind as EntryKind
from training_imgtool.direct.links import DependsOnBaseError
from training_imgtool.direct.tree import FILE, PLAIN, Attributes, Kind, Node, make_folder
from training_imgtool.dockerfile.evaluate import Expanded

_FLAGS = frozenset({"chown", "chmod", "link"})
_OWNER = re.compile(r"(?P<user>\d+|root)(?::(?P<group>\d+|root))?\Z")
_LARGEST_ID = 2**31 - 1  # engines read larger ones in different ways
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_CHECKSUM = slice(148, 156)  # in a tar header, which every version of tar has


@dataclass(frozen=True, slots=True)
class _Flags:
    """What the flags say: a mode instead of the context's, and the owner."""

    mode: int | None = None
    uid: int = 0
    gid: int = 0

    @property
    def attributes(self) -> Attributes:
        """Of a folder that is copied."""
        return Attributes(FOLDER_MODE, self.uid, self.gid)


@dataclass(frozen=True, slots=True)
class FileLayer:
    """A layer of files.

    Attributes:
        placed: what goes where, by absolute path: an entry of the context, or a folder by its attributes.
        flags: what the flags say of the entries.
        nodes: what is where once the layer is there.
    """

    placed: Mapping[str, Source | Attributes]
    flags: _Flags
    nodes: Mapping[str, Node]

    def contents(self) -> Contents:
        """Lists the layer's items in order, each with the hash of its content."""
        ordered = ((path, self.placed[path]) for path in sorted(self.placed))
        return tuple(
            (make_folder_item(path.strip("/"), placed.mode, placed.uid, placed.gid), "")
            if isinstance(placed, Attributes)
            else (_make_item(path, placed, self.flags), placed.sha256 or "")
            for path, placed in ordered
        )


def plan_copy(step: Expanded, context: Context, files: Files, working: str) -> FileLayer:
    """Plans the files that one COPY or ADD adds to the layer.

    Args:
        step: the instruction.
        context: what it takes from.
        files: what the image has before it.
        working: the working folder, absolute.

    Raises:
        NeedsEngineError: engines disagree, or only they can do it. DependsOnBaseError where the base decides that.
        InputError: a source is not in the context.
    """
    label = f"line {step.instruction.line}: {step.name}"
    flags = _read_flags(step, label, files)
    sources = [source for word in step.words[:-1] for source in copy_sources(context, word)]
    word = step.words[-1]
    if len(sources) > 1 and not word.endswith("/"):
        raise NeedsEngineError(f"{label}: several sources need a destination that ends with /")
    if flags.mode is not None and any(source.entry.kind is SourceKind.DIRECTORY for source in sources):
        raise NeedsEngineError(f"{label}: --chmod of folders needs an engine")
    if word.startswith("/") and posixpath.normpath(f".{word}").startswith(".."):
        raise NeedsEngineError(f"{label}: engines differ in what {word} means, which leads out of the root")
    layer = _Layer(label, files, flags)
    for source in sources:
        if step.name == "ADD" and is_archive(source.entry):
            raise NeedsEngineError(f"{label} unpacks {source.entry.path}: that needs an engine")
        target = posixpath.normpath(posixpath.join("/", working, word))
        if source.entry.kind is SourceKind.DIRECTORY:
            layer.put_folder(target, source.entry, source.chosen)
        else:
            layer.put_file(_resolve_target(layer, source, target, word), source.entry)
    if not layer.placed:
        raise NeedsEngineError(f"{label} takes nothing: there is no empty layer")
    return layer.result()


def _read_flags(step: Expanded, label: str, files: Files) -> _Flags:
    unknown = set(step.flags) - _FLAGS
    if unknown or step.instruction.heredocs:
        raise NeedsEngineError(f"{label} {f'--{min(unknown)}' if unknown else 'with a heredoc'} needs an engine")
    chmod, chown = step.flags.get("chmod"), step.flags.get("chown")
    if chmod and not re.fullmatch("0?[0-7]{3,4}", chmod):
        raise NeedsEngineError(f"{label} --chmod={chmod}: only octal modes are known here")
    owner = _OWNER.match(chown) if chown else None
    if chown and not owner:
        raise NeedsEngineError(f"{label} --chown={chown}: only an engine knows the base's users")
    user = owner["user"] if owner else "0"
    group = (owner["group"] if owner else None) or user
    if any(name != "root" and int(name) > _LARGEST_ID for name in (user, group)):
        raise NeedsEngineError(f"{label} --chown={chown}: an ID above {_LARGEST_ID}")
    for name, file in ((user, "/etc/passwd"), (group, "/etc/group")):
        if name == "root" and (files.node(file) is None or files.resolve(file) != file):
            raise DependsOnBaseError(f"{label} --chown={chown}: the base has no {file}")
        if name == "root" and files.is_listed:  # which tells that the file is there, and not what is in it
            raise DependsOnBaseError(f"{label} --chown={chown}: only an engine reads the base's {file}; 0 is for root")
    return _Flags(int(chmod, 8) if chmod else None, *(0 if name == "root" else int(name) for name in (user, group)))


def _resolve_target(layer: _Layer, source: CopySource, target: str, word: str) -> str:
    """Decides where a file goes: into the destination if that is or is written as a folder, else under its name."""
    real = layer.files.resolve(target)
    node = layer.node(real)
    if word.endswith("/") or (node is not None and node.kind is Kind.FOLDER):
        return posixpath.join(real, source.name)
    if posixpath.basename(word) in {".", ".."}:
        raise DependsOnBaseError(f"{layer.label}: engines differ in whether {word} is a folder that is not there yet")
    if real != posixpath.join(layer.files.resolve(posixpath.dirname(target)), posixpath.basename(target)):
        raise DependsOnBaseError(f"{layer.label}: {target} is a link, and not to a folder")
    return real


class _Layer:
    """The layer of one instruction while it grows."""

    def __init__(self, label: str, files: Files, flags: _Flags) -> None:
        self.label = label
        self.files = files
        self.placed: dict[str, Source | Attributes] = {}
        self._flags = flags
        self._has_folders = False  # whether a source is a folder
        self._nodes: dict[str, Node] = {}
        self._new: set[str] = set()  # folders that are not there before: nothing is in them but what the layer puts

    def node(self, path: str) -> Node | None:
        """Finds what is at a resolved path once the layer is there."""
        if (node := self._nodes.get(path)) is not None or posixpath.dirname(path) in self._new:
            return node
        return self.files.node(path)

    def put_folder(self, target: str, source: Source, context: Context) -> None:
        """Copies what a folder of the context holds into `target`, which stays as it is when it is a folder."""
        self._has_folders = True
        top = self.files.resolve(target)
        node = self.node(top)
        if node is None:
            self._put(top, source)
        elif node.kind is not Kind.FOLDER:
            raise DependsOnBaseError(f"{self.label} of a folder onto {top}, which is a file")
        else:
            self._carry(top)
        put = self._put_new if node is None else self._put
        prefix, above = f"{source.path}/" if source.path else "", top.rstrip("/")
        for entry in context.entries:
            if entry.path.startswith(prefix) and entry.path != source.path:
                put(f"{above}/{entry.path[len(prefix) :]}", entry)

    def put_file(self, path: str, source: Source) -> None:
        """Copies a file to `path`."""
        self._put(path, source)

    def make_folder(self, path: str) -> None:
        """Makes a folder that is not there."""
        self._put(path, Source(path="", kind=SourceKind.DIRECTORY, mode=FOLDER_MODE))

    def result(self) -> FileLayer:
        """Makes the layer; folders on the way to what it holds are carried along where that is needed."""
        holders = dict.fromkeys(map(posixpath.dirname, self.placed))
        for path in dict.fromkeys(above for holder in holders for above in list_parents(f"{holder}/x")):
            self._carry(path)
        return FileLayer(self.placed, self._flags, self._nodes)

    def _put(self, path: str, source: Source) -> None:
        """Puts an entry at `path`; engines agree on a folder over a folder and on a file over a file only."""
        node = self.node(path)
        is_folder = source.kind is SourceKind.DIRECTORY
        if node is not None and (node.kind is Kind.FOLDER) is not is_folder:
            what = "a file or a link" if is_folder else "a folder"
            raise DependsOnBaseError(f"{self.label}: {path} is {what}, and engines differ in what becomes of it")
        if is_folder:
            self._check_new(path, node)
        if is_folder and node is not None:
            self._set_folder(path, self._flags.attributes)
        else:
            self._put_new(path, source)

    def _put_new(self, path: str, source: Source) -> None:
        """Puts an entry where nothing is, or a file over a file."""
        if source.kind is SourceKind.DIRECTORY:
            self._set_folder(path, self._flags.attributes)
            self._new.add(path)
            return
        self.placed[path] = source
        link = source.kind is SourceKind.SYMLINK
        self._nodes[path] = Node(Kind.LINK, target=source.target or "") if link else FILE

    def _check_new(self, path: str, node: Node | None) -> None:
        """Refuses a new folder in one with the set-group-ID bit, which it inherits in some engines only."""
        above = self.node(posixpath.dirname(path)) if node is None else None
        if above is not None and above.attributes is not None and above.attributes.mode & stat.S_ISGID:
            raise DependsOnBaseError(f"{self.label}: {path} would be made in a folder with the set-group-ID bit")

    def _set_folder(self, path: str, attributes: Attributes) -> None:
        self.placed[path] = attributes
        self._nodes[path] = make_folder(attributes)

    def _carry(self, path: str) -> None:
        """Carries a folder that the layer passes through: made when it is not there, else as it is.

        Docker's overlay driver gives a folder that a layer only implies mode 755 and owner 0, so those that have
        another one, and those that were made here, are carried along; the base's plain ones are not.
        """
        if path == "/" or path in self.placed:
            return
        node = self.node(path)
        if node is None:
            if self._has_folders and self._flags.attributes != PLAIN:
                raise DependsOnBaseError(
                    f"{path}: who owns a folder that {self.label} --chown makes on its way depends on the builder"
                )
            self._check_new(path, node)
            self._set_folder(path, self._flags.attributes)
            return
        if node.kind is not Kind.FOLDER:
            raise DependsOnBaseError(f"{self.label}: {path} is a file, no folder")
        if node.attributes is None:
            raise DependsOnBaseError(f"{self.label}: engines differ in the mode of the base's {path}")
        if path in self.files.copied or node.attributes != PLAIN:
            self._set_folder(path, node.attributes)


def plan_folder(label: str, path: str, files: Files) -> FileLayer | None:
    """Plans the layer of WORKDIR; None when `path` is there. Raises DependsOnBaseError when it is a file."""
    real = files.resolve(path)
    node = files.node(real) if real != "/" else make_folder()
    if node is not None:
        if node.kind is not Kind.FOLDER:
            raise DependsOnBaseError(f"{label}: {path} is a file")
        return None
    layer = _Layer(label, files, _Flags())
    layer.make_folder(real)
    return layer.result()


def _make_item(path: str, source: Source, flags: _Flags) -> Item:
    kinds = {SourceKind.FILE: EntryKind.FILE, SourceKind.SYMLINK: EntryKind.LINK}
    kind = kinds[source.kind]
    entry = Entry(
        path=path.strip("/"),
        kind=kind,
        mode=source.mode if flags.mode is None or kind is EntryKind.LINK else flags.mode,
        size=source.size if kind is EntryKind.FILE else 0,
        target=source.target or "",
        uid=flags.uid,
        gid=flags.gid,
    )
    return Item(entry, blocks=partial(blocks, source) if kind is EntryKind.FILE else None)


@dataclass(frozen=True, slots=True)
class CopySource:
    """What COPY takes: the entry, links followed, the name that it was found by, and what lies below it."""

    name: str
    entry: Source
    chosen: Context


def copy_sources(context: Context, word: str) -> list[CopySource]:
    """Lists what a source names: itself, or each match of a pattern; the root as a folder."""
    path = posixpath.normpath(word.lstrip("/") or ".")
    chosen = context.select((word,))
    if any(entry.kind is SourceKind.FILE and entry.origin is None for entry in chosen.entries):
        raise NeedsEngineError(f"{word}: wheels as files, which only an engine's context has")
    if path == ".":
        return [CopySource("", Source(path="", kind=SourceKind.DIRECTORY, mode=FOLDER_MODE), chosen)]
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


def is_archive(entry: Source) -> bool:
    """Returns whether ADD unpacks a file: by its name or its first bytes."""
    if entry.path.endswith((".tar", ".tgz", ".tbz2", ".txz", ".tzst")):
        return True
    head = next(blocks(entry), b"") if entry.kind is SourceKind.FILE and entry.origin is not None else b""
    return head.startswith(_ARCHIVES) or _is_tar(head[:BLOCK])


def _is_tar(header: bytes) -> bool:
    number = header[_CHECKSUM].split(b"\0")[0].strip()
    if len(header) < BLOCK or not number.isdigit() or number.strip(b"01234567"):
        return False
    rest = header[: _CHECKSUM.start] + b" " * 8 + header[_CHECKSUM.stop :]
    return int(number, 8) in {sum(rest), sum(rest) - 256 * sum(byte > 127 for byte in rest)}
