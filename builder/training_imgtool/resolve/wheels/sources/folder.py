"""Reads folders of code that requirements name: lists, hashes and copies the files that a build needs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from training_imgtool.base.context.own_files import is_litter, is_litter_folder, list_own_files
from training_imgtool.base.errors import InputError
from training_imgtool.model.entry_point import PROJECT_FILES

_BUILT = frozenset({"build", "dist"})  # left out at the top of the folder, unless they are packages
_LEFT_OUT = re.compile(r".*\.egg-info|\..*_cache")
_LARGEST = 256 << 20  # bytes of all files


class CodeFolder:
    """The files of a folder, except those of builds, tools and version control, and imgtool's own files.

    Args:
        spec_folder: the spec's folder, from which `path` starts, and which contains imgtool's own files.
        path: the folder.
        spec_name: the spec's file, on which no package depends.

    Raises InputError for a folder that pip could not install.
    """

    def __init__(self, spec_folder: Path, path: str, spec_name: str) -> None:
        self._top = (spec_folder / path).resolve()
        if not self._top.is_dir():
            raise InputError("there is no such folder")
        if not any((self._top / name).is_file() for name in PROJECT_FILES):
            raise InputError(
                f"the folder has no {', no '.join(PROJECT_FILES)}",
                hint="name the folder of a project; add other code to the image with `trainer: {include: [...]}`",
            )
        own = spec_folder.resolve()
        self._leave_out = {own / name for name in (*list_own_files(spec_folder), spec_name)}

    def hash(self) -> str:
        """Returns the sha256 of names, modes and contents, in hexadecimal; raises InputError for too large a folder."""
        digest, size = hashlib.sha256(), 0
        for path in self._list_files(self._top):
            is_link = path.is_symlink()
            content = os.fsencode(path.readlink()) if is_link else path.read_bytes()
            size += len(content)
            if size > _LARGEST:
                raise InputError(
                    f"the folder contains more than {_LARGEST >> 20} MiB, too much for a package's source",
                    hint="move data out of the folder, or name a folder inside it that contains only the package",
                )
            mode = "link" if is_link else "program" if path.stat().st_mode & 0o100 else "file"
            digest.update(f"{path.relative_to(self._top)}\0{mode}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
        return digest.hexdigest()

    def copy(self, target: Path, *, largest_file: int | None = None) -> None:
        """Copies the files, except those larger than `largest_file` bytes."""
        for path in self._list_files(self._top):
            if path.is_symlink() or largest_file is None or path.stat().st_size <= largest_file:
                place = target / path.relative_to(self._top)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place, follow_symlinks=False)

    def _list_files(self, folder: Path) -> Iterator[Path]:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
        for entry in entries:
            path = Path(entry.path)
            is_built = folder == self._top and entry.name in _BUILT and not (path / "__init__.py").exists()
            if is_litter(entry.name) or _LEFT_OUT.fullmatch(entry.name) or path in self._leave_out or is_built:
                continue
            if not entry.is_dir(follow_symlinks=False):
                if path.is_symlink() or path.is_file():  # not a FIFO or socket
                    yield path
            elif not is_litter_folder(entry.name, os.listdir(path)):  # noqa: PTH208 - names only
                yield from self._list_files(path)
