"""Finds the requirements that name the trainer's own project, such as `-e .`. Such a project needs no wheel.

The lock contains the requirements of such a project, but not the project itself. The image gets the project's code with
the trainer's code, and a change of the code must not change the lock.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from training_imgtool.base.toml import parse_toml
from training_imgtool.model.entry_point import PROJECT_FILES
from training_imgtool.model.load import SpecFile
from training_imgtool.model.requirement_files import read_texts
from training_imgtool.model.requirements import list_code, normalise_name
from training_imgtool.model.source_requirements import SourceRequirement, is_archive
from training_imgtool.model.spec import APP

_NAME = re.compile(r"(?:^\s*|[(,]\s*)name\s*=\s*[\"']?([\w.-]+)", re.MULTILINE)  # in setup.cfg, setup.py


def is_own_project(requirement: SourceRequirement, spec_file: SpecFile) -> bool:
    """Returns whether a requirement names a project of the trainer, for which the program needs no wheel."""
    if requirement.is_git or is_archive(requirement.path):
        return False
    folder = requirement.path
    root, packages = _packages(spec_file.folder / folder, folder)
    code = _from_spec(spec_file, spec_file.entry.paths)
    is_there = not packages or any(_contains(path, part) or _contains(part, path) for path in code for part in packages)
    return root in _import_roots(spec_file) and is_there


def own_names(spec_file: SpecFile) -> frozenset[str]:
    """Returns the normalised names of the trainer's own projects, as far as the projects' files contain names."""
    rows = list_code(read_texts(spec_file))
    folders = (spec_file.folder / row.path for row in rows if is_own_project(row, spec_file))
    return frozenset(normalise_name(name) for folder in folders for name in _read_names(folder))


def _read_names(folder: Path) -> Iterator[str]:
    """Yields the names of a project in the project's files; none if only the project's build knows the name."""
    texts = {name: path.read_text(errors="replace") for name in PROJECT_FILES if (path := folder / name).is_file()}
    with suppress(ValueError):
        document = parse_toml(texts.pop("pyproject.toml", ""))
        tool = document.get("tool")
        tables = (document.get("project"), tool.get("poetry") if isinstance(tool, dict) else None)
        yield from (str(table["name"]) for table in tables if isinstance(table, dict) and "name" in table)
    yield from (match[1] for text in texts.values() if (match := _NAME.search(text)))


def _import_roots(spec_file: SpecFile) -> tuple[str, ...]:
    """Lists the folders from which the program imports modules, relative to the spec's folder."""
    entry = spec_file.entry
    first = entry.home if entry.script is None else posixpath.dirname(entry.script) or "."
    below = (f"{path}/" for path in spec_file.spec.env.get("PYTHONPATH", "").split(":"))
    named = (path.removeprefix(f"{APP}/").rstrip("/") or "." for path in below if path.startswith(f"{APP}/"))
    return _from_spec(spec_file, (first, *entry.search_path, *named))


def _from_spec(spec_file: SpecFile, paths: Iterable[str]) -> tuple[str, ...]:
    """Converts paths relative to the entry point's `top` into paths relative to the spec's folder."""
    folder = spec_file.folder.resolve()
    return tuple(os.path.relpath((spec_file.entry.top / path).resolve(), folder) for path in paths)


def _packages(place: Path, folder: str) -> tuple[str, tuple[str, ...]]:
    """Returns the folder that contains a project's packages, `src` or the project's folder, and these packages."""
    root = "src" if any(place.glob("src/*/__init__.py")) else "."
    start = posixpath.normpath(posixpath.join(folder, root))
    names = (path.parent.name for path in sorted((place / root).glob("*/__init__.py")))
    return start, tuple(posixpath.normpath(posixpath.join(start, name)) for name in names)


def _contains(folder: str, path: str) -> bool:
    relative = posixpath.relpath(path, folder)
    return relative != ".." and not relative.startswith("../")
