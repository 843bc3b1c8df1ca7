"""The build context: an immutable, sorted list of files, folders and links with their hashes.

Files come from the spec's folder (`scan`) or from elsewhere on this machine, or exist only in memory.
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
    """The entries, sorted by path, so that a folder comes before its content."""

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
        """Returns a context with the same entries below `folder`."""
        if folder == ".":
            return self
        above = (_folder(path) for path in (*_parents(folder), folder))
        moved = (replace(entry, path=f"{folder}/{entry.path}") for entry in self.entries)
        return Context(_sort((*above, *moved)))

    def joined(self, other: Context) -> Context:
        """Joins two contexts, which may share folders but no files."""
        by_path = {entry.path: entry for entry in (*other.entries, *self.entries)}
        return Context(_sort(by_path.values()))

    def resolve(self, path: str) -> str:
        """Follows the links in a path as engines do; raises InputError for a loop."""
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
        """Computes the git tree id of `folder`; raises InputError if the folder is missing."""
        return git_tree(self.entries, posixpath.normpath(folder.strip("/")))

    def write_tar(self, stream: IO[bytes], mtime: int = MTIME) -> None:
        """Writes the entries as a deterministic tar; raises InputError if a file has changed since the scan."""
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
    """Reads a folder as Docker would send it, but without `__pycache__`, `*.pyc` and `.git`.

    Args:
        folder: the context's root.
        only: the wanted paths, with everything below them; by default everything.
        ignore: patterns to use instead of the folder's own `.dockerignore`.
        allow_secrets: paths or patterns of allowed files that look like secrets.
        hashes: hashes from earlier runs, by path, size, times and inode. `scan` uses them and adds new ones, so that
            the next run does not read an unchanged tree again.
        leave_out: paths to leave out, as if `.dockerignore` listed them.
        at: the folder's path in a larger context, into which symbolic links may lead.

    Raises:
        InputError: a path is missing, unreadable, changing, outside the context, too large, or secret.
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
    """Returns whether a COPY's `path` contains a link to another place in `folder`, which `only` would miss."""
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
    """Computes the git tree id of `folder`, which ignores empty folders, as git does.

    Args:
        entries: a context's entries, sorted.
        folder: a relative path in the context; `.` for all.

    Raises:
        InputError: a file below `folder` has no git hash, or `folder` is not a folder.
    """
    prefix = "" if folder == "." else f"{folder}/"
    below = [entry for entry in entries if entry.path.startswith(prefix)]
    if prefix and not any(entry.path == folder and entry.kind is Kind.DIRECTORY for entry in entries):
        raise InputError(f"{folder}: not a folder")
    return _tree(below, len(prefix))


def _tree(entries: Sequence[Entry], start: int) -> str:
    """Computes the id of a tree; the names of its members begin at index `start` of their paths."""
    items: dict[bytes, tuple[bytes, bytes, str]] = {}
    below: dict[str, list[Entry]] = {}
    for entry in entries:
        name, slash, _ = entry.path[start:].partition("/")
        if slash:
            below.setdefault(name, []).append(entry)
        elif entry.kind is not Kind.DIRECTORY:
            if entry.blob is None:
                raise InputError(
                    f"{entry.path}: imgtool knows only the sha256 of this file, and cannot compute its git id"
                )
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
