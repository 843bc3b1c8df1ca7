"""Finds imgtool's own files beside the code: they belong to no image, and would change its key each time they change.

These are its locks, specs, job files and results, what a run prints into a file just now or printed earlier, and the
credentials that CI's login steps leave in the folder. What decides is a file's content or its well-known name, so that
every machine leaves out the same.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

JOB_MARK = ".imgtool-job"  # the empty file in a job directory that `imgtool run` made
_FOLDER_MARKS = (JOB_MARK, "pyvenv.cfg")
_LOCK = b"# Made by `imgtool lock`"
_SPECS = (".yaml", ".yml")
_HEAD = 4096
_NAMES = re.compile(r"\.dockerignore|gha-creds-[0-9a-f]+\.json|(?:import-)?cosign\.(?:key|pub)")
_JOB = re.compile(rb"(?:\A|\n)# Written by imgtool ")
_RESULT = re.compile(rb'\A\{\n  "ok": (?:true|false),\n  "\w+": ')  # --json
_BILL = re.compile(rb'\A\{\n  "\$schema": "[^"]*cyclonedx[^"]*"|\A\{\n  "bomFormat": "CycloneDX"')
_BILL_TOOL = b'"name": "imgtool"'
_REPORT = re.compile(rb"\A<!doctype html>\n<!-- Written by imgtool ")  # of run
_LINE = rb"(?:\[[\w./ -]+\] |note: |warning: |Error: |Try: |  )[^\n]*"  # of --progress plain, notes and errors
_IMAGE = rb"(?:\S+ )?(?:master|worker|ps|evaluator) \S+@sha256:[0-9a-f]{64}"
_LOG = re.compile(rb"\A(?! )(?:(?:" + _LINE + rb"|" + _IMAGE + rb"|imgtool: stopped|)(?:\n|\Z))+\Z")
_LOGS = frozenset({"", ".log", ".txt", ".out", ".err"})
_STREAMS = frozenset({".log", ".out", ".err"})


def list_own_files(folder: Path) -> frozenset[str]:
    """Lists the names in `folder` that an image of the whole folder leaves out.

    Virtual environments (folders with a `pyvenv.cfg`) and the job directories of `imgtool run` are among them. What
    cannot be read is not left out: reading it fails later, by name.
    """
    names = set()
    for path in folder.iterdir():
        try:
            if path.is_dir():
                names |= {path.name} if any((path / name).is_file() for name in _FOLDER_MARKS) else set()
            elif _NAMES.fullmatch(path.name):
                names.add(path.name)
            elif path.suffix == ".lock" and _read_head(path).startswith(_LOCK):
                names |= {path.name, *(f"{path.stem}{suffix}" for suffix in _SPECS)}
            elif path.suffix != ".py" and _is_written_by_imgtool(path):
                names.add(path.name)
        except OSError:
            continue
    return frozenset(names)


def own_streams() -> frozenset[tuple[int, int]]:
    """Returns device and inode of the files that stdout and stderr are: what imgtool prints is no input of it."""
    states = [os.fstat(descriptor) for descriptor in (1, 2) if _is_open(descriptor)]
    return frozenset((state.st_dev, state.st_ino) for state in states if stat.S_ISREG(state.st_mode))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_written_by_imgtool(path: Path) -> bool:
    head = _read_head(path)
    if not head:  # a redirected stream that got nothing
        return path.suffix in _STREAMS and path.is_file()
    if _JOB.search(head[:200]) or _REPORT.match(head) or (path.suffix == ".json" and _RESULT.match(head)):
        return True
    if _BILL.match(head):
        return _BILL_TOOL in head or _BILL_TOOL in _read_tail(path)
    whole_lines = head if len(head) < _HEAD else head[: head.rfind(b"\n") + 1]
    return path.suffix in _LOGS and bool(whole_lines.strip()) and bool(_LOG.match(whole_lines))


def _read_head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        return stream.read(_HEAD)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _HEAD))
        return stream.read(_HEAD)
