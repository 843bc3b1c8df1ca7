"""Compares the files of a virtual environment with the RECORD of each package in it.

The format is PyPA's, "Recording installed projects". The text of this module also runs inside an image, so it needs
the standard library only and keeps to Python 3.7.
"""

# A path is text here, since this runs on thousands of files:
# ruff: noqa: PTH115, PTH123

from __future__ import annotations

import base64
import csv
import hashlib
import os
import posixpath
import re
import stat
from typing import TYPE_CHECKING

from training_imgtool.verify.inside.bytecode import name_source

if TYPE_CHECKING:
    from typing import Any

VENV = "opt/venv/"
_LIB64 = "opt/venv/lib64"
_SKELETON = re.compile(r"opt/venv/(?:bin/python[\d.]*|pyvenv\.cfg|lib64)\Z")  # of the environment, not of a package


def compare_records(files: dict[str, Any], records: dict[str, str], exclude: list[str]) -> dict[str, list[str]]:
    """Returns the paths that are `missing`, `changed`, or `unowned` by any package, each list sorted.

    A file below an excluded path is unowned: what is left out must not be there. Bytecode in `__pycache__` may be
    missing, may exist for any source, and may differ: the installer compiles what a wheel brings, and `bytecode`
    compares that. Where packages share a path, one match is enough, since the last one installed wins.

    Args:
        files: size and SHA-256 (as RECORD spells it) by path, relative to the root; `->TARGET` for a link.
        records: the text of each RECORD by its path.
        exclude: path prefixes below site-packages that the spec leaves out.
    """
    rows: dict[str, list[list[str]]] = {}
    damaged: list[str] = []
    left_out: set[str] = set()
    for record, text in records.items():
        site = record.rsplit("/", 2)[0]
        left_out.update(f"{site}/{prefix}" for prefix in exclude)
        try:
            for row in csv.reader(text.splitlines()):
                path = posixpath.normpath(posixpath.join("/" + site, row[0]))[1:] if row else ""
                if path.startswith(VENV):
                    rows.setdefault(path, []).append([*row, "", ""][1:3])
        except csv.Error:
            damaged.append(record)
    missing, changed = [], damaged
    for path in [path for path in rows if _is_below(path, left_out)]:
        del rows[path]
    for path, entries in rows.items():
        if path in files:
            if not name_source(path) and not any(_matches(files[path], digest, size) for digest, size in entries):
                changed.append(path)
        elif not name_source(path):
            missing.append(path)
    unowned = [path for path in files if _is_below(path, left_out) or (path not in rows and not _belongs(path, files))]
    return {"missing": sorted(missing), "changed": sorted(changed), "unowned": sorted(unowned)}


def _is_below(path: str, left_out: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:count]) in left_out for count in range(len(parts), 0, -1))


def _matches(file: Any, digest: str, size: str) -> bool:
    """A row without a hash, as RECORD's own, matches any file; pip writes SHA-256 only."""
    if digest.startswith("sha256=") and digest[7:] != file[1]:
        return False
    return not size.isdigit() or int(size) == file[0]


def _belongs(path: str, files: dict[str, Any]) -> bool:
    if path == _LIB64:
        return bool(files[path][1] == "->lib")
    source = name_source(path)
    return source in files if source else bool(_SKELETON.match(path))


def hash_content(path: str, state: os.stat_result) -> list[Any]:
    """Size and SHA-256 of a file below the root, as RECORD spells them; the target of a link."""
    if stat.S_ISLNK(state.st_mode):
        return [0, "->" + os.readlink("/" + path)]
    digest = hashlib.sha256()
    try:
        if stat.S_ISREG(state.st_mode):
            with open("/" + path, "rb") as stream:
                for block in iter(lambda: stream.read(1 << 20), b""):
                    digest.update(block)
    except OSError as error:
        return [state.st_size, "unreadable: " + str(error.strerror)]
    return [state.st_size, base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")]
