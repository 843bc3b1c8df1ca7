"""Says which files are never input of an image: they would change its key each time they change.

These are imgtool's own locks, specs, job files and results, what a run prints into a file just now or printed earlier,
and what tools leave in a folder while they work: caches, virtual environments, logs of runs, the files of editors,
systems and CI, the credentials of CI's login steps. What decides is a file's content or its well-known name, so that
every machine leaves out the same.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path

from training_imgtool.core.system import list_pipe_ends, list_recordings

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
_HEAD = 4096
# `re` compiles a pattern when a file first needs it; most folders need few of them.
_NAMES = r"\.dockerignore|gha-creds-[0-9a-f]+\.json|(?:import-)?cosign\.(?:key|pub)"
_JOB = rb"(?:\A|\n)# Written by imgtool "
_RESULT = rb'\A\{\n  "ok": (?:true|false),\n  "\w+": '  # --json
_BILL = rb'\A\{\n  "\$schema": "[^"]*cyclonedx[^"]*"|\A\{\n  "bomFormat": "CycloneDX"'
_BILL_TOOL = b'"name": "imgtool"'
_MADE = (
    rb"(?s)\A<!doctype html>\n<!-- Written by imgtool "  # run --report
    rb"|\A\S+ \(\w+/\w+\) from [^\n]+\nlayers: "  # show
    rb"|\AScript started on "  # script(1)
    rb"|\A\x7fELF[\x01\x02][\x01\x02].{10}(?:\x04\x00|\x00\x04)"  # a core dump: e_type is ET_CORE
)
_LINE = (  # of --progress plain and json, notes and errors, and of replicas
    rb"(?:\[[\w./ -]+\] |note: |warning: |Error: |Try: |nohup: |  |\{\"time\": [\d.]+, \"event\": "
    rb"|(?:master|chief|worker|ps|evaluator)(?:-\d+)? +\| )[^\n]*"
)
_IMAGE = rb"(?:(?:\S+ )?(?:master|worker|ps|evaluator) |IMGTOOL_[A-Z]+=)\S+@sha256:[0-9a-f]{64}"
_RUN = rb"\S+ as [\w-]+: (?:succeeded|failed), [^\n]*|[\w-]+ was killed at [^\n]*|job directory: [^\n]*"
_LOG = rb"\A(?! )(?:(?:" + _LINE + rb"|" + _IMAGE + rb"|" + _RUN + rb"|imgtool: stopped|)(?:\n|\Z))+\Z"
_LOGS = frozenset({"", ".log", ".txt", ".out", ".err", ".env", ".jsonl", ".ndjson"})  # .env: of GitLab's component
_STREAMS = frozenset({".log", ".out", ".err"})
_BUILD = rb"(?m)^(?:" + _IMAGE + rb"|\[(?:master|worker|ps|evaluator)\] (?:found|appended|built)  )"
_BUILD_HEAD = 65536  # bytes, in which the log of a build has a line of imgtool's


def is_litter(name: str) -> bool:
    """Tells by the name alone whether a file or folder, wherever it lies, is one that a tool left."""
    return name in _LITTER or name.startswith(_BEGINS) or name.endswith(_ENDS) or name[0] == name[-1] == "#"


def is_litter_folder(name: str, members: Collection[str]) -> bool:
    """Tells whether a folder is a cache, a virtual environment, a job directory of `imgtool run`, or a log of runs."""
    if not _FOLDER_MARKS.isdisjoint(members):
        return True
    begins = _TRACKERS.get(name)
    return begins is not None and "__init__.py" not in members and any(one.startswith(begins) for one in members)


def list_own_files(folder: Path) -> frozenset[str]:
    """Lists the names in `folder` that an image of the whole folder leaves out, by content or by name.

    What cannot be read is not left out: reading it fails later, by name.
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
            elif path.suffix != ".py" and _is_written_by_tools(path):
                names.add(path.name)
        except OSError:
            continue
    return frozenset(names)


class Streams:
    """The files that stdout and stderr go to, through script too: what imgtool prints is no input of it."""

    def __init__(self) -> None:
        states = [os.fstat(descriptor) for descriptor in (1, 2) if _is_open(descriptor)]
        self._files = {_identify(state) for state in states if stat.S_ISREG(state.st_mode)}
        self._pipes = frozenset(state.st_ino for state in states if stat.S_ISFIFO(state.st_mode))
        if any(stat.S_ISCHR(state.st_mode) for state in states):
            self._files |= list_recordings()

    def __contains__(self, status: os.stat_result) -> bool:
        """Tells whether a file is one of them, or what a program behind a pipe writes, such as tee."""
        if self._pipes:
            self._files |= list_pipe_ends(self._pipes)
            self._pipes = frozenset()
        return _identify(status) in self._files


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_written_by_tools(path: Path) -> bool:
    head = _read_head(path)
    if not head:  # a redirected stream that got nothing
        return path.suffix in _STREAMS and path.is_file()
    if re.search(_JOB, head[:200]) or re.match(_MADE, head) or (path.suffix == ".json" and re.match(_RESULT, head)):
        return True
    if re.match(_BILL, head):
        return _BILL_TOOL in head or _BILL_TOOL in _read_tail(path)
    if path.suffix in _STREAMS and re.search(_BUILD, _read_head(path, _BUILD_HEAD)):
        return True
    whole_lines = head if len(head) < _HEAD else head[: head.rfind(b"\n") + 1]
    return path.suffix in _LOGS and bool(whole_lines.strip()) and bool(re.match(_LOG, whole_lines))


def _read_head(path: Path, size: int = _HEAD) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        return stream.read(size)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _HEAD))
        return stream.read(_HEAD)
