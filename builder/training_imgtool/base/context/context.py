"""The build context: an immutable, sorted list of files, folders and links, known by hash.

Files come from the spec's folder (`scan`), from elsewhere on this machine, or exist in memory only.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
from bisect import bisect_left
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from training_imgtool.base.context.dockerignore import DockerIgnore, parse_dockerignore
from training_imgtool.base.context.entries import Entry, Kind, OnDisk, open_below, unreadable
from training_imgtool.base.context.scan import Walk
from training_imgtool.base.context.tar import MTIME, write_tar
from training_imgtool.base.errors import InputError

IGNORE_FILE = ".dockerignore"
_MOST_LINKS = 40  # Linux' MAXSYMLINKS
_MODES = {(Kind.FILE, 0o644): b"100644", (Kind.FILE, 0o755): b"100755", (Kind.SYMLINK, 0o777): b"120000"}


@dataclass(frozen=True, slots=True)
class Context:
    """The entries, sorted by path; a folder always comes before what it holds."""

    entries: tuple[Entry, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Returns the path of every entry."""
        return tuple(entry.path for entry in self.entries)

    def on_disk(self) -> tuple[Entry, ...]:
        """Selects the files that come from the spec's folder."""
        return tuple(entry for entry in self.entries if isinstance(entry.origin, OnDisk))

    def entry(self, path: str) -> Entry:
        """Finds the entry at `path`; raises KeyError when there is none."""
        entry = self.find(path)
        if entry is None:
            raise KeyError(path)
        return entry

    def find(self, path: str) -> Entry | None:
        """Finds the entry at `path`; None when there is none."""
        at = bisect_left(self.entries, path, key=_path)
        return self.entries[at] if at < len(self.entries) and self.entries[at].path == path else None

    def below(self, folder: str) -> Context:
        """Places the entries below `folder` of another context."""
        if folder == ".":
            return self
        above = (_folder(path) for path in (*_parents(folder), folder))
        moved = (replace(entry, path=f"{folder}/{entry.path}") for entry in self.entries)
        return Context(_sort((*above, *moved)))

    def joined(self, other: Context) -> Context:
        """Joins two contexts, which have only folders in common."""
        by_path = {entry.path: entry for entry in (*other.entries, *self.entries)}
        return Context(_sort(by_path.values()))

    def resolve(self, path: str) -> str:
        """Follows a path's links as engines do; raises InputError for a loop."""
        left, at, count = path.split("/")[::-1], "", 0
        while left:
            name = left.pop()
            if name in {"", ".", ".."}:
                at = posixpath.dirname(at) if name == ".." else at
                continue
            inner = posixpath.join(at, name)
            entry = self.find(inner)
            if entry is None or entry.kind is not Kind.SYMLINK:
                at = inner
                continue
            count += 1
            if count > _MOST_LINKS:
                raise InputError(f"{path}: a symbolic link that leads back to itself")
            left += (entry.target or "").split("/")[::-1]
        return at

    def tree_id(self, folder: str) -> str:
        """Computes the git object id of `folder` as a tree; raises InputError when it is not there."""
        return git_tree(self.entries, posixpath.normpath(folder.strip("/")))

    def write_tar(self, stream: IO[bytes], mtime: int = MTIME) -> None:
        """Writes the entries as a deterministic tar; raises InputError when a file changed since it was seen."""
        write_tar(self.entries, stream, mtime)


def scan(
    folder: Path,
    *,
    only: Iterable[str] = (),
    ignore: DockerIgnore | None = None,
    allow_secrets: Iterable[str] = (),
    hashes: MutableMapping[str, str] | None = None,
    leave_out: frozenset[str] = frozenset(),
    at: str = ".",
) -> Context:
    """Reads a folder as Docker would send it, `__pycache__`, `*.pyc` and `.git` left out.

    Args:
        folder: the context's root.
        only: the paths wanted, with all below them; by default everything.
        ignore: instead of the folder's own `.dockerignore`.
        allow_secrets: paths or patterns of files that look like secrets and are wanted.
        hashes: hashes from earlier runs, by path, size, times and inode; read and added to, so that an unchanged
            tree is not read again.
        leave_out: paths to leave out, as if `.dockerignore` listed them.
        at: where the folder lies in a larger context, in which symbolic links may lead.

    Raises:
        InputError: something missing, unreadable, changing, outside, too much, or secret; it names the path.
    """
    wanted = tuple(posixpath.normpath(path.strip("/")) for path in only)
    only = () if "." in wanted else wanted
    walk = Walk(
        root=folder,
        only=only,
        ignore=_ignore_file(folder) if ignore is None else ignore,
        allow_secrets=tuple(allow_secrets),
        leave_out=leave_out,
        hashes={} if hashes is None else hashes,
        at=at,
    )
    return Context(_sort(walk.run()))


def leads_through_link(folder: Path, path: str) -> bool:
    """Returns whether what a COPY names by `path` may lie elsewhere below `folder`, so that `only` does not find it."""
    return any((folder / above).is_symlink() for above in (Path(path), *Path(path).parents))


def _ignore_file(folder: Path) -> DockerIgnore:
    path = folder / IGNORE_FILE
    try:
        with os.fdopen(open_below(folder, IGNORE_FILE), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{path}: not a file")
            return parse_dockerignore(file.read().decode(), file=str(path))
    except FileNotFoundError:
        return DockerIgnore()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path}: a symbolic link", hint="make it a file") from error
        raise unreadable(str(path), error) from error


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _path(entry: Entry) -> str:
    return entry.path


def _folder(path: str) -> Entry:
    return Entry(path=path, kind=Kind.DIRECTORY, mode=0o755)


def _sort(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=_path))


def git_tree(entries: Sequence[Entry], folder: str) -> str:
    """Computes git's object id of `folder` as a tree, empty folders left out as git does.

    Args:
        entries: a context's entries, sorted.
        folder: relative path in it; `.` for all.

    Raises:
        InputError: a file below it is known by another hash only, or `folder` is no folder.
    """
    prefix = "" if folder == "." else f"{folder}/"
    below = [entry for entry in entries if entry.path.startswith(prefix)]
    if prefix and not any(entry.path == folder and entry.kind is Kind.DIRECTORY for entry in entries):
        raise InputError(f"{folder}: not a folder")
    return _tree(below, len(prefix))


def _tree(entries: Sequence[Entry], start: int) -> str:
    """Computes the id of the tree whose members' names begin at `start` in their paths."""
    items: dict[bytes, tuple[bytes, bytes, str]] = {}
    below: dict[str, list[Entry]] = {}
    for entry in entries:
        name, slash, _ = entry.path[start:].partition("/")
        if slash:
            below.setdefault(name, []).append(entry)
        elif entry.kind is not Kind.DIRECTORY:
            if entry.blob is None:
                raise InputError(f"{entry.path}: only its sha256 is known, so it has no git id")
            encoded = name.encode()
            items[encoded] = (_MODES[entry.kind, entry.mode], encoded, entry.blob)
    for name, inner in below.items():
        encoded = name.encode()
        if any(entry.kind is not Kind.DIRECTORY for entry in inner):
            items[encoded + b"/"] = (b"40000", encoded, _tree(inner, start + len(name) + 1))
    data = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for _, (mode, name, oid) in sorted(items.items()))
    return _object("tree", data)


def _object(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
