"""Finds files that are never input of an image, because each change of such a file would change the image's key.

These are imgtool's own locks, specs, job files and results, the files that this run's output goes to, and files that
tools leave in a folder: caches, virtual environments, logs of runs, the files of editors, operating systems and CI, and
the credentials of CI's login steps. imgtool decides by a file's content or well-known name, so that every machine
leaves out the same files. Users who keep logs of imgtool in such a folder list these logs in `.dockerignore`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

JOB_MARK = ".imgtool-job"  # the empty file in a job directory that `imgtool run` made
_FOLDER_MARKS = frozenset({JOB_MARK, "pyvenv.cfg", "oci-layout", "CACHEDIR.TAG"})  # the last: bford.info/cachedir
_LITTER = frozenset({
    *("__pycache__", ".git", ".hg", ".svn"),
    *(".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", "node_modules"),
    *(".coverage", "coverage.xml", "htmlcov", ".ipynb_checkpoints", ".virtual_documents"),
    *(".idea", ".vscode", ".vs", ".DS_Store", ".AppleDouble", ".Trashes", "Thumbs.db", "desktop.ini"),
    *(".github", ".gitlab", ".gitlab-ci.yml", ".gitlab-ci-local", ".circleci", ".travis.yml", ".buildkite"),
    *(".scannerwork", ".terraform", ".direnv"),
})  # fmt: skip
_BEGINS = ("events.out.tfevents.", ".coverage.", ".#", "._", ".nfs", ".fuse_hidden", ".Trash-")
_ENDS = (".pyc", ".swp", ".swo", "~", "@tmp")  # the last is Jenkins' folder beside one that a step works in
_TRACKERS = {"wandb": ("run-", "offline-run-", "latest-run", "debug"), "mlruns": ("0", ".trash", "models")}
_LOCK = b"# Made by `imgtool lock`"
_SPECS = (".yaml", ".yml")
_HEAD = 200  # bytes at a file's start that tell whether imgtool wrote it
# `re` compiles a pattern at its first use; most folders use few of these patterns.
SCHEMA = ".image.schema.json"  # the JSON schema of the spec, which `imgtool init` writes for editors
_NAMES = r"\.dockerignore|\.image\.schema\.json|gha-creds-[0-9a-f]+\.json|(?:import-)?cosign\.(?:key|pub)|.+\.cdx\.json"
_MADE = (
    rb"(?:\A|\n)# Written by imgtool |\A<!doctype html>\n<!-- Written by imgtool "  # config, run --report
    rb'|\A\{\n  "schema": \d+,\n  "ok": (?:true|false),\n  "\w+": '  # --json
)


def is_litter(name: str) -> bool:
    """Tells, from the name alone, whether a tool left a file or folder behind."""
    return name in _LITTER or name.startswith(_BEGINS) or name.endswith(_ENDS) or name[0] == name[-1] == "#"


def is_litter_folder(name: str, members: Collection[str]) -> bool:
    """Tells whether a folder is a cache, a virtual environment, a job directory of `imgtool run`, or a log of runs."""
    if not _FOLDER_MARKS.isdisjoint(members):
        return True
    begins = _TRACKERS.get(name)
    return begins is not None and "__init__.py" not in members and any(one.startswith(begins) for one in members)


def list_own_files(folder: Path) -> frozenset[str]:
    """Lists the names in `folder` that an image of the whole folder leaves out, because of their content or name.

    The result does not contain an unreadable file. imgtool fails when it reads that file later, and names the file.
    """
    names = set()
    for path in folder.iterdir():
        try:
            if path.is_dir():
                names |= {path.name} if is_litter_folder(path.name, os.listdir(path)) else set()  # noqa: PTH208
            elif is_litter(path.name) or re.fullmatch(_NAMES, path.name):
                names.add(path.name)
            elif path.suffix == ".lock" and _read_head(path).startswith(_LOCK):
                names |= {path.name, *(f"{path.stem}{suffix}" for suffix in _SPECS)}
            elif path.suffix != ".py" and re.search(_MADE, _read_head(path)):
                names.add(path.name)
        except OSError:
            continue
    return frozenset(names)


class Streams:
    """The files that stdout and stderr go to. imgtool must not read these files as input."""

    def __init__(self) -> None:
        states = [os.fstat(descriptor) for descriptor in (1, 2) if _is_open(descriptor)]
        self._files = {(state.st_dev, state.st_ino) for state in states if stat.S_ISREG(state.st_mode)}

    def __contains__(self, status: os.stat_result) -> bool:
        """Tells whether stdout or stderr goes to a file."""
        return (status.st_dev, status.st_ino) in self._files


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _read_head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        return stream.read(_HEAD)
