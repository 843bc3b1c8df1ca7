"""Decides how an image starts a program: `trainer`, PYTHONPATH, and the current folder."""

from __future__ import annotations

import posixpath
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from imgtool_project_reader.programs import Program, Reached, can_stand, list_words
from imgtool_project_reader.read import Project
from imgtool_project_reader.statement import Statement

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The values of a spec's keys that tell where a program is and how it starts.

    Attributes:
        trainer: the keys of `trainer`; with `source` alone, the spec uses the short form.
        python_path: the value of PYTHONPATH, if the program needs one.
        new_file: the script for a notebook; None for other programs.
    """

    trainer: dict[str, str]
    python_path: str | None = None
    new_file: str | None = None


def place(program: Program, reached: Reached, project: Project) -> Placement | None:
    """Decides how a spec starts a program; returns None if a Dockerfile cannot name the program's folder."""
    if program.script is not None:
        module, _, function = program.target.partition(":")
        return Placement(trainer={"source": program.home, "module": module, "function": function})
    path, folder, new_file = program.path, program.folder, None
    if path.endswith(".ipynb"):
        path = new_file = _name_script(path, reached)
    if not can_stand(folder):
        return None
    start = _find_start(program, reached, project)
    root = _find_root(program, reached)
    others = [other for other in reached.roots if other not in {folder, root, start}]
    if root is None:
        is_alone = folder == "." or not (start != "." or _needs_all(reached, folder))
        trainer = {"source": path} if is_alone else {"source": ".", "script": path}
        search = [other for other in reached.roots if other != folder]
    else:
        names = path.removesuffix(".py").split("/")
        names = names[len(root.split("/")) if root != "." else 0 :]
        module = ".".join(names[:-1] if names[-1] == "__main__" else names)
        own = names[0] if root == "." else root
        is_narrow = not _needs_all(reached, own) and start == "." and (len(names) > 1 or root != ".")
        trainer = {"source": own if is_narrow else ".", "module": module}
        search = [*others, *([folder] if folder in reached.roots and folder != root else [])]
        is_found = root == "." or (not search and (is_narrow or root == "src"))  # without PYTHONPATH
        search = [*search, root] if not is_found or start != "." else search
    if start != ".":
        trainer["workdir"] = start
    path_value = ":".join(posixpath.normpath(posixpath.join("/app", other)) for other in dict.fromkeys(search))
    return Placement(trainer=trainer, python_path=path_value or None, new_file=new_file)


def _find_root(program: Program, reached: Reached) -> str | None:
    """Returns the folder in which Python finds the program as a module; None if the program runs as a script."""
    folder = program.folder
    parts = folder.split("/") if folder != "." else []
    above = [root for root in reached.roots if root == "." or f"{folder}/".startswith(f"{root}/")]
    beyond = [root for root in above if root != folder]
    words = [
        *parts[len(beyond[0].split("/")) if beyond and beyond[0] != "." else 0 :],
        PurePosixPath(program.path).stem,
    ]
    if not all(map(str.isidentifier, words)):
        return None
    if reached.is_relative:
        return beyond[0] if beyond else (posixpath.dirname(folder) or ".")
    if folder in reached.roots or not beyond or program.path.endswith(".ipynb"):
        return None
    package = [*parts, program.path.rpartition("/")[2].removesuffix(".py")][
        len(beyond[0].split("/")) if beyond[0] != "." else 0
    ]
    return beyond[0] if package in reached.tops else None


def _find_start(program: Program, reached: Reached, project: Project) -> str:
    """Returns the folder to start the program in, so that the program's relative paths are right."""
    folder = program.folder
    if folder == "." or not can_stand(folder):
        return "."
    if program.path.endswith(".ipynb"):
        return folder
    if any(map(partial(_starts_in, program=program), program.commands)):
        return folder
    paths = {path for source in reached.sources for path in source.paths if "." in path and not path.startswith("/")}
    beside = {path for source in reached.sources if source.path.startswith(f"{folder}/") for path in source.paths}
    inside = {path for path in beside if path.startswith("../")}
    top = {path for path in paths if project.has(path) and not project.has(posixpath.join(folder, path))}
    if inside and not top:
        return folder  # these paths would leave the project's folder
    here = {path for path in paths if project.has(posixpath.join(folder, path)) and not project.has(path)}
    return folder if here and not top else "."


def _starts_in(command: Statement, program: Program) -> bool:
    """Tells whether a command starts a program in the program's folder: after `cd`, or with the file name alone."""
    where = command.value.partition(" && ")[0] if " && " in command.value else ""
    inner = where.removeprefix("cd ").strip("/ ")
    if where:
        starts = {posixpath.normpath(posixpath.join(base, inner)) for base in (posixpath.dirname(command.file), "")}
        return program.folder in starts
    return list_words(command)[:1] == (posixpath.basename(program.path),)


def _needs_all(reached: Reached, folder: str) -> bool:
    """Tells whether the program needs files outside `folder`, according to its imports and paths."""
    if folder == ".":
        return True
    inside = f"{folder}/"
    return any(not source.path.startswith(inside) for source in reached.sources) or any(
        "/" in path and not path.startswith(("/", "..")) for source in reached.sources for path in source.paths
    )


def _name_script(notebook: str, reached: Reached) -> str:
    """Returns the path for a notebook's script: in the same folder, importable, and not named like an import."""
    folder, name = posixpath.split(notebook)
    stem = _NOT_IN_NAMES.sub("_", name.removesuffix(".ipynb")).strip("_") or "notebook"
    hidden = {item.module.partition(".")[0] for item, _, _ in reached.foreign} | sys.stdlib_module_names | {"keras"}
    return posixpath.join(folder, f"{stem}{'_notebook' if stem in hidden else ''}.py")
