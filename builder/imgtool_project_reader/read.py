"""Reads a project's folder: lists the files, and collects the statements in each file."""

from __future__ import annotations

import codecs
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from imgtool_project_reader.hint_files import read_docker, read_prose, read_python_version, read_shell
from imgtool_project_reader.requirement_files import (
    Reader,
    read_builds,
    read_conda,
    read_pip,
    read_pip_lock,
    read_pipfile,
    read_pipfile_lock,
    read_pylock,
    read_pyproject,
    read_script,
    read_toml_lock,
)
from imgtool_project_reader.setup_files import read_setup_cfg, read_setup_py
from imgtool_project_reader.statement import Fact, Statement

_MOST_FILES = 4000
_LARGEST = 4 << 20  # bytes
_DEEPEST = 6  # levels of folders
_SKIPPED = re.compile(
    r"\..*|__pycache__|build|dist|venv|node_modules|site-packages|third_party|.*\.egg-info|wandb|mlruns"
)
_OF_ENVIRONMENT = ("pyvenv.cfg", "conda-meta", "bin/python", "Scripts")
_DEEPEST_PROSE = 2  # a README below the top counts only for the programs in its folder

_HEAD = re.compile(r'"""The cells of (?P<notebook>.+), as imgtool init wrote them\."""\n')


@dataclass(frozen=True)
class Project:
    """A project's folder with the statements of its files.

    Attributes:
        folder: the path of the folder.
        files: the paths below the folder, in the order of a walk; without files that cannot contain programs or
            statements.
        statements: the statements of all files, by file.
    """

    folder: Path
    files: tuple[str, ...]
    statements: dict[str, tuple[Statement, ...]]

    def read(self, file: str) -> str:
        """Returns the text of a file; "" if the file is missing, too large or not text."""
        return read_text(self.folder / file)

    def has(self, path: str) -> bool:
        """Tells whether a file or folder exists; the path may contain `..`."""
        plain = posixpath.normpath(path)
        return not plain.startswith(("..", "/")) and (self.folder / plain).exists()


def read_project(folder: Path, read_yaml: Callable[[str], object]) -> Project:
    """Reads the files in `folder`. A file that the reader cannot read or parse yields no statements."""
    conda: Reader = partial(read_conda, read_yaml=read_yaml)
    readers = _list_readers(conda)
    patterns = [pattern for pattern, _ in readers]
    files = tuple(file for file in _list_files(folder, patterns) if not _is_written_by_init(folder, file))
    statements: dict[str, tuple[Statement, ...]] = {}
    for file in files:
        name = PurePosixPath(file).name
        reader = next((read for pattern, read in readers if pattern.fullmatch(name)), None)
        is_far = reader is read_prose and file.count("/") >= _DEEPEST_PROSE
        if reader is not None:
            text = read_text(folder / file)
            every: Iterable[Statement] = reader(text, file)
            every = every if reader is read_script or is_lock(file) else chain(every, read_builds(text, file))
            found = tuple(item for item in every if not is_far or item.fact is Fact.COMMAND)
            if found:
                statements[file] = found
    waiting = [item for rows in statements.values() for item in rows]
    while waiting:  # files that others name, whatever their names are
        item = waiting.pop()
        is_list = item.fact is Fact.INCLUDE
        plain = posixpath.normpath(posixpath.join(posixpath.dirname(item.file), item.value) if is_list else item.value)
        kinds = {".txt": read_pip, ".in": read_pip, ".yml": conda, ".yaml": conda}
        named = kinds.get(posixpath.splitext(plain)[1], read_pip if is_list else None)
        if item.fact in {Fact.INCLUDE, Fact.INSTALL} and named and plain not in {*statements, *files}:
            rows = () if plain.startswith(("..", "/")) else tuple(named(read_text(folder / plain), plain))
            statements |= {plain: rows} if rows else {}
            waiting += rows
    return Project(folder, files, statements)


def _list_readers(conda: Reader) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    """Returns patterns of file names, each with the reader for such files."""
    return (
        (
            re.compile(
                r"(?i)(?:.*[._-])?(?:pip-?)?(?:requirements?|requirments?|reqs?|constraints)[\w.-]*\.(?:txt|in|pip)"
            ),
            read_pip,
        ),
        (re.compile(r"pyproject\.toml"), read_pyproject),
        (re.compile(r"Pipfile"), read_pipfile),
        (re.compile(r"(?:poetry|uv|pdm|.*\.py)\.lock"), read_toml_lock),
        (re.compile(r"Pipfile\.lock"), read_pipfile_lock),
        (re.compile(r"(?i)requirements[\w.-]*\.lock"), read_pip_lock),
        (re.compile(r"pylock(?:\.[^.]+)?\.toml"), read_pylock),
        (re.compile(r"setup\.cfg"), read_setup_cfg),
        (re.compile(r"setup\.py"), read_setup_py),
        (re.compile(r".*\.py"), read_script),
        (re.compile(r"(?i)(?:.*[._-])?(?:environment|conda|env|requirements?)[\w.-]*\.ya?ml"), conda),
        (re.compile(r"(?i)(?:.*\.)?dockerfile(?:[._-].*)?|containerfile"), read_docker),
        (re.compile(r"\.python-version|runtime\.txt"), read_python_version),
        (re.compile(r"(?i)readme(?:\.\w+)?|install(?:ation)?\.(?:md|rst|txt)"), read_prose),
        (re.compile(r".*\.(?:sh|slurm|sbatch)|[Mm]akefile"), read_shell),
    )


def read_text(path: Path) -> str:
    """Returns the text of a file; "" if the file is missing, too large or not text."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return ""
        data = path.read_bytes()
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # from `pip freeze > FILE` in PowerShell
        return data.decode("utf-16" if is_wide else "utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError):
        return ""


def write_head(notebook: str) -> str:
    """Returns the first line of the script for a notebook."""
    return f'"""The cells of {notebook}, as imgtool init wrote them."""\n'


def _is_written_by_init(folder: Path, file: str) -> bool:
    """Tells whether `init` wrote this script for a notebook that still exists; if so, the notebook is the program."""
    if not file.endswith(".py") or not any((folder / file).parent.glob("*.ipynb")):
        return False
    head = _HEAD.match(read_text(folder / file))
    return head is not None and (folder / head["notebook"]).is_file()


def _list_files(folder: Path, patterns: list[re.Pattern[str]]) -> Iterator[str]:
    count = 0
    for place, folders, files in os.walk(folder):
        below = Path(place).relative_to(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not _SKIPPED.fullmatch(name) and len(below.parts) < _DEEPEST and name.isprintable()
            if not (name == "env" and any((Path(place) / name / part).exists() for part in _OF_ENVIRONMENT))
        )
        for name in sorted(files):
            path = Path(place, name)
            is_list = any(pattern.fullmatch(name) for pattern in patterns)
            if not (is_list or name.endswith((".py", ".sh", ".ipynb"))) or not name.isprintable():
                continue
            if path.is_symlink() and not (is_list and path.resolve().is_relative_to(folder.resolve())):
                continue
            count += 1
            if count > _MOST_FILES:
                return
            yield (below / name).as_posix()


def list_locked(project: Project) -> dict[str, Requirement]:
    """Maps packages to the releases in the lock files of tools such as Poetry and uv."""
    items = (item for rows in project.statements.values() for item in rows if item.fact is Fact.PINNED)
    return {item.package: item.requirement for item in items if is_lock(item.file)}


def is_lock(file: str) -> bool:
    """Tells whether a file is the lock of a tool such as Poetry or uv."""
    return file.endswith(".lock") or re.fullmatch(r"pylock\b.*\.toml", file.rpartition("/")[2]) is not None


def list_placed(project: Project) -> dict[str, Statement]:
    """Returns packages that a README installs from Git. In lists, their bare names mean these repositories."""
    rows = (
        item for file in project.statements for item in project.statements[file] if file.lower().startswith("readme")
    )
    return {
        item.package: item
        for item in rows
        if item.fact is Fact.PACKAGE and (item.requirement.url or "").startswith("git+")
    }
