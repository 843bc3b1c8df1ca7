"""Walks a folder and makes the entries of a build context: the files that Docker would send, checked and hashed.

With the hashes of earlier runs, imgtool need not read a big unchanged tree again.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
import time
import unicodedata
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from training_imgtool.base.context import secret_files
from training_imgtool.base.context.dockerignore import DockerIgnore, Verdict
from training_imgtool.base.context.entries import BLOCK, GONE, Entry, Kind, OnDisk, change_error, unreadable
from training_imgtool.base.context.own_files import Streams, is_litter, is_litter_folder
from training_imgtool.base.context.secret_files import PATTERNS
from training_imgtool.base.errors import InputError
from training_imgtool.base.image_limits import find_path_fault
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.system import list_names

MOST_ENTRIES = 100_000
MOST_BYTES = 4 << 30
DEEPEST = 100  # levels of folders
_RACY_NS = 2_000_000_000  # so soon after a change, a file may change again without a new timestamp
_HASHES = re.compile("[0-9a-f]{64} [0-9a-f]{40} (?:plain|secret)")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, and no wait for a FIFO
_FEWEST = 64  # files: reading fewer files is faster than remembering them,
_LEAST = 16 << 20  # unless they have at least so many bytes
_MOST = 200_000  # remembered entries; beyond this number, unused ones are deleted
_MAX_BYTES = 256 << 20


class Walk:
    """One walk over a folder; `entries` is the result, unsorted.

    Args:
        root: the context's folder.
        only: the wanted paths, with everything below them; empty for all.
        ignore: the patterns of `.dockerignore`.
        allow_secrets: paths or patterns of allowed files that look like secrets.
        hashes: hashes of earlier runs, by path, size, times and inode; the walk adds new ones.
        leave_out: further paths to leave out.
        at: the folder's path in a larger context, into which symbolic links may lead.
    """

    def __init__(
        self,
        *,
        root: Path,
        only: tuple[str, ...],
        ignore: DockerIgnore,
        allow_secrets: tuple[str, ...],
        hashes: MutableMapping[str, str],
        leave_out: frozenset[str],
        at: str,
    ) -> None:
        self.entries: list[Entry] = []
        self._root = root
        self._prefix = f"{root / 'x'}"[:-1]
        self._only = only
        self._ignore = ignore
        self._allow_secrets = allow_secrets
        self._hashes = hashes
        self._leave_out = leave_out
        self._at = at
        self._suspects: list[str] = []
        self._bytes = 0
        self._now = time.time_ns()
        self._streams = Streams()

    def run(self) -> list[Entry]:
        """Walks over the folder; raises InputError that names the path and the fault."""
        try:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise unreadable(str(self._root), error) from error
        try:
            self._folder(descriptor, "", None, list_names(descriptor))
        finally:
            os.close(descriptor)
        secret_files.refuse(self._suspects)
        return self.entries

    def _folder(self, descriptor: int, prefix: str, verdict: Verdict | None, names: list[str]) -> bool:
        """Walks one open folder; returns whether it contains nothing but files that tools left."""
        if prefix.count("/") > DEEPEST:
            raise InputError(f"{prefix}: folders are nested more than {DEEPEST} levels deep")
        before, litter = len(self.entries), False
        for name in names:
            path = prefix + name
            if is_litter(name) and not self._names(path):
                litter = True
                continue
            _check_name(path)
            if not self._wants(path):
                continue
            decided = self._ignore.decide(path, verdict)
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    litter = self._subfolder(descriptor, name, path, decided) or litter
                elif not decided.ignored:
                    self._leaf(descriptor, name, path, status)
            except OSError as error:
                if error.errno in GONE:
                    raise change_error(path) from error
                raise unreadable(path, error) from error
        return litter and len(self.entries) == before

    def _names(self, path: str) -> bool:
        """Returns whether the spec names the path or a path below it; if not, the walk skips the path."""
        return any(path == want or want.startswith(f"{path}/") for want in self._only)

    def _wants(self, path: str) -> bool:
        if path in self._leave_out:
            return False
        return not self._only or any(
            path == want or path.startswith(f"{want}/") or want.startswith(f"{path}/") for want in self._only
        )

    def _subfolder(self, descriptor: int, name: str, path: str, decided: Verdict) -> bool:
        """Walks a folder; returns whether the walk leaves the folder out because a tool made it."""
        if decided.ignored and not self._ignore.brings_back:
            return False
        before = len(self.entries)
        inner = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=descriptor)
        try:
            names = list_names(inner)
            litter = is_litter_folder(name, names) and not self._names(path)
            litter = litter or self._folder(inner, f"{path}/", decided, names)
        finally:
            os.close(inner)
        if len(self.entries) > before or not (decided.ignored or litter):
            self.entries.append(Entry(path=path, kind=Kind.DIRECTORY, mode=0o755))
            self._count(path, 0)
        return litter

    def _leaf(self, descriptor: int, name: str, path: str, status: os.stat_result) -> None:
        if status in self._streams:
            return
        if secret_files.by_name(path) and not secret_files.allowed(path, self._allow_secrets):
            self._suspects.append(path)
            return
        if stat.S_ISLNK(status.st_mode):
            self.entries.append(_link(path, os.readlink(name, dir_fd=descriptor), self._at))
            self._count(path, 0)
            return
        if not stat.S_ISREG(status.st_mode):
            kinds = {
                stat.S_IFIFO: "a FIFO",
                stat.S_IFSOCK: "a socket",
                stat.S_IFCHR: "a device",
                stat.S_IFBLK: "a device",
            }
            what = kinds.get(stat.S_IFMT(status.st_mode), "no file")
            raise InputError(
                f"{path}: {what} cannot be part of an image", hint="remove it, or list it in .dockerignore"
            )
        self._count(path, status.st_size)
        self.entries.append(self._file(descriptor, name, path, status))

    def _file(self, descriptor: int, name: str, path: str, status: os.stat_result) -> Entry:
        """Opens the file, checks that it is the same one, and hashes it unless an earlier run did."""
        hashes = str(self._hashes.get(self._key(path, status)))
        if not _HASHES.fullmatch(hashes):
            opened = os.open(name, _OPEN, dir_fd=descriptor)
            with os.fdopen(opened, "rb", buffering=0):
                status = os.fstat(opened)
                if not stat.S_ISREG(status.st_mode):
                    raise change_error(path)
                hashes = self._hash(opened, path, status)
            if self._now - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS:
                self._hashes[self._key(path, status)] = hashes
        sha256, blob, suspect = hashes.split(" ")
        if suspect == "secret" and not secret_files.allowed(path, self._allow_secrets):
            self._suspects.append(path)
        return Entry(
            path=path,
            kind=Kind.FILE,
            mode=0o755 if status.st_mode & stat.S_IXUSR else 0o644,
            size=status.st_size,
            sha256=sha256,
            blob=blob,
            origin=OnDisk(root=self._root, path=path, inode=status.st_ino, mtime_ns=status.st_mtime_ns),
        )

    def _key(self, path: str, status: os.stat_result) -> str:
        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
        return f"{self._prefix}{path}\0{status.st_size} {times} {status.st_ino}"

    def _hash(self, opened: int, path: str, before: os.stat_result) -> str:
        """Returns `SHA256 GIT_ID secret` or `SHA256 GIT_ID plain`; raises InputError if the file changes meanwhile."""
        sha256 = hashlib.sha256()
        blob = hashlib.sha1(b"blob %d\0" % before.st_size, usedforsecurity=False)
        size = 0
        head = b""
        while block := os.read(opened, BLOCK):
            head += block[: secret_files.HEAD - len(head)]
            size += len(block)
            sha256.update(block)
            blob.update(block)
            if size > before.st_size:
                raise change_error(path)
        after = os.fstat(opened)
        if size != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
            raise change_error(path)
        suspect = secret_files.by_content(path, head)
        return f"{sha256.hexdigest()} {blob.hexdigest()} {'secret' if suspect else 'plain'}"

    def _count(self, path: str, size: int) -> None:
        if fault := find_path_fault(path):
            raise InputError(f"{path[:80]}: {fault}", hint="rename it, or list it in .dockerignore")
        self._bytes += size
        if len(self.entries) >= MOST_ENTRIES or self._bytes > MOST_BYTES:
            raise InputError(
                f"{path}: the build context has more than {MOST_ENTRIES} entries or {MOST_BYTES >> 30} GiB",
                hint="leave out data with .dockerignore; training data belongs in a bucket",
            )


def _check_name(path: str) -> None:
    """Raises InputError if the file name in a path contains control characters or is not UTF-8."""
    name = path.rpartition("/")[2]
    if not (name.isascii() and name.isprintable()) and any(map(_is_control, name)):
        shown = path.encode("utf-8", "surrogateescape").decode("ascii", "backslashreplace")
        raise InputError(f"{shown!r}: a name in an image must be UTF-8 without control characters")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def _link(path: str, target: str, at: str) -> Entry:
    inside = posixpath.normpath(posixpath.join(at, posixpath.dirname(path), target))
    if target.startswith("/") or inside == ".." or inside.startswith("../"):
        cure = "copy the target into the context" if target.startswith("/") else "name its target in trainer.include"
        raise InputError(
            f"{path}: a symbolic link to {target!r}, which lies outside the build context",
            hint=f"{cure}, or list the link in .dockerignore",
        )
    content = target.encode("utf-8", "surrogateescape")
    blob = hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()
    return Entry(path=path, kind=Kind.SYMLINK, mode=0o777, target=target, blob=blob)


@contextmanager
def remembered_hashes(cache: Path, root: Path) -> Iterator[MutableMapping[str, str]]:
    """Yields the hashes of earlier runs; a key is a path, size, times and inode. Losing the hashes costs only time.

    Each folder has its own file of hashes, so that a large folder does not slow down a small one. A version of imgtool
    with other patterns for secrets uses another file, since the entries tell which files look like secrets.
    """
    name = hashlib.sha256(b"\0".join((PATTERNS.encode(), bytes(root.absolute()))))
    path = cache / "hashes" / f"{name.hexdigest()}.json"
    cached = read_cached(path, _MAX_BYTES)
    before: dict[str, str] = cached if isinstance(cached, dict) else {}
    hashes = dict(before)
    yield hashes
    new = hashes.keys() - before.keys()
    if len(new) < _FEWEST and sum(map(_size, new)) < _LEAST:
        return
    entries = hashes if len(hashes) <= _MOST else {key: hashes[key] for key in new}
    write_cached(path, entries, _MAX_BYTES)


def _size(key: str) -> int:
    """Reads a file's size from the file's key in the table of hashes."""
    return int(key.partition("\0")[2].partition(" ")[0])
