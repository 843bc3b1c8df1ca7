"""Finds out what a program has changed in its container's file system.

A part of `warm_program`, as `imports`. An engine knows the same, and takes seconds to tell it.
"""
# ruff: noqa: PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OCTAL = re.compile(r"\\([0-7]{3})")


def list_mounts() -> set[str]:
    """Lists where something is mounted; the root is not among it."""
    with open("/proc/self/mountinfo") as stream:
        paths = {line.split()[4] for line in stream}
    return {_OCTAL.sub(lambda code: chr(int(code.group(1), 8)), path) for path in paths} - {"/"}


class Tree:
    """All that this process may change below a folder, as it was: mounts left out.

    Attributes:
        added: the topmost paths that are new, once `look` has run.
        changed: the files that are others.
        removed: the paths that are gone.
    """

    def __init__(self, root: str, mounts: Iterable[str]) -> None:
        self.added: list[str] = []
        self.changed: list[str] = []
        self.removed: list[str] = []
        self._mounts, self._user = set(mounts), os.geteuid()
        self._folders: dict[str, int] = {}
        self._files: dict[str, int] = {}
        for path, state in self._walk(root):
            self._note(path, state)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        waiting = [folder]
        while waiting:
            path = waiting.pop()
            with contextlib.suppress(OSError):
                yield path, os.lstat(path)
                with os.scandir(path) as entries:
                    for entry in entries:
                        if entry.path in self._mounts:
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        else:
                            yield entry.path, entry.stat(follow_symlinks=False)

    def _note(self, path: str, state: os.stat_result) -> None:
        if state.st_uid == self._user or state.st_mode & 0o022:
            if stat.S_ISDIR(state.st_mode):
                self._folders[path] = state.st_ctime_ns  # nobody can set it back, as an engine does with other times
            else:
                self._files[path] = state.st_ctime_ns

    def look(self) -> None:
        """Compares the tree with the files of today."""
        self.added, self.changed, self.removed = [], [], []
        for path, before in self._files.items():
            try:
                if os.lstat(path).st_ctime_ns != before:
                    self.changed.append(path)
            except OSError:
                self.removed.append(path)
        for path, before in self._folders.items():
            try:
                if os.lstat(path).st_ctime_ns != before:
                    names = {os.path.join(path, name) for name in os.listdir(path)}
                    self.added += sorted(names - self._files.keys() - self._folders.keys() - self._mounts)
            except OSError:
                self.removed.append(path)

    def renew(self, paths: Iterable[str]) -> None:
        """Takes these paths, and the folders that they lie in, as they are now."""
        paths = set(paths)
        for path in paths:
            self._files.pop(path, None)
            self._folders.pop(path, None)
        for path in paths | {os.path.dirname(path) for path in paths}:
            with contextlib.suppress(OSError):
                self._note(path, os.lstat(path))
