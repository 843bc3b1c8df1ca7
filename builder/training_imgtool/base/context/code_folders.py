"""The context of a spec whose code lies in several folders, each with its own `.dockerignore`.

imgtool scans the spec's folder for the paths that the image needs. imgtool scans separately each other folder that
`trainer` names, and places that folder in the context at its path below the top folder.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.context.context import Context, leads_through_link, scan
from training_imgtool.base.context.own_files import list_own_files
from training_imgtool.base.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFolders:
    """The folders that a context is read from.

    Attributes:
        spec: the spec's file.
        top: the context's root.
        paths: the folders and files with the code, relative to `top`, none inside another.
        allow_secrets: paths or patterns of allowed files that look like secrets, relative to the spec's folder.
        hashes: see `scan`.
        cache: imgtool's cache, which may lie in one of these folders.
    """

    spec: Path
    top: Path
    paths: tuple[str, ...]
    allow_secrets: tuple[str, ...]
    hashes: MutableMapping[str, str]
    cache: Path | None = None

    @property
    def _home(self) -> str:
        """The spec's folder, relative to `top`."""
        return "." if self.top == self.spec.parent else os.path.relpath(self.spec.parent.resolve(), self.top)

    def read(self, files: Iterable[str] = ()) -> Context:
        """Reads the code and the given files of the spec's folder; raises what `scan` raises."""
        home, named = self._home, list(files)
        if any(leads_through_link(self.spec.parent, name) for name in named):
            return self.read_all()
        own = [path for path in self.paths if _lies_in(path, home)]
        return self._read([*own, *(posixpath.normpath(posixpath.join(home, name)) for name in named)])

    def read_all(self) -> Context:
        """Reads the spec's whole folder, and the code in other folders."""
        return self._read([self._home])

    def _others(self) -> list[str]:
        return [path for path in self.paths if not _lies_in(path, self._home)]

    def _read(self, own: list[str]) -> Context:
        """Reads the paths in `own`, which lie in the spec's folder, and all code in other folders."""
        context, home = Context(), self._home
        if own and not any(_lies_in(home, path) for path in self._others()):
            only = tuple(posixpath.relpath(path, home) for path in own)
            leave_out = {self.spec.name, *list_own_files(self.spec.parent)} if home in {*self.paths, *own} else set()
            context = scan(
                self.spec.parent,
                only=only,
                allow_secrets=self.allow_secrets,
                hashes=self.hashes,
                leave_out=frozenset(leave_out | self._find_cache(self.spec.parent)),
                at=home,
            ).below(home)
        for path in self._others():
            context = context.joined(self._read_other(path))
        return context

    def _read_other(self, path: str) -> Context:
        """Reads a folder or a file that does not lie in the spec's folder."""
        is_file = (self.top / path).is_file()
        at = (posixpath.dirname(path) or ".") if is_file else path
        named = posixpath.relpath(path, self._home)
        leave_out = list_own_files(self.top / at) | self._find_cache(self.top / at)
        if _lies_in(self._home, path):
            own = {self.spec.name, *list_own_files(self.spec.parent)}
            leave_out |= {posixpath.normpath(posixpath.join(posixpath.relpath(self._home, at), name)) for name in own}
        try:
            return scan(
                self.top / at,
                only=(posixpath.basename(path),) if is_file else (),
                allow_secrets=tuple(_select_patterns(self.allow_secrets, posixpath.relpath(at, self._home))),
                hashes=self.hashes,
                leave_out=leave_out,
                at=at,
            ).below(at)
        except InputError as error:
            raise InputError(f"{named}: {error.message}", hint=error.hint) from error

    def _find_cache(self, folder: Path) -> set[str]:
        """Returns the cache's path relative to a folder; the empty set if the cache does not lie in the folder."""
        path = os.path.relpath(self.cache.resolve(), folder.resolve()) if self.cache else ".."
        return set() if path == "." or path.startswith("..") else {path}


def _lies_in(path: str, folder: str) -> bool:
    return folder in {".", path} or path.startswith(f"{folder}/")


def _select_patterns(patterns: tuple[str, ...], folder: str) -> Iterable[str]:
    """Selects the patterns that match paths in `folder`, and makes them relative to `folder`."""
    for pattern in map(posixpath.normpath, patterns):
        if folder == "." or _lies_in(folder, pattern):
            yield pattern if folder == "." else "*"
        elif pattern.startswith(f"{folder}/"):
            yield pattern.removeprefix(f"{folder}/")
