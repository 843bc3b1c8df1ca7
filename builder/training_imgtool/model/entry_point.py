"""Finds the program that a spec's `trainer` starts, and the program's files.

In the image, the code is below /app, at its path relative to the top folder. The top folder is the spec's folder. If
`trainer` names a path above that folder, the top folder is the lowest folder that contains the spec and all named
paths. The program starts in the spec's folder, so `python -m MODULE` finds modules there; `python FILE` finds modules
beside FILE. PYTHONPATH names the other folders from which the program imports modules, such as `src`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from training_imgtool.base.errors import FieldError
from training_imgtool.base.python_parser import is_main_guard, parse_python
from training_imgtool.model.spec import APP, Trainer
from training_imgtool.model.value_rules import find_nearest, quote

_LARGEST_FILE = 1 << 20  # the most bytes of a file that may be the program
_MOST_SHOWN = 5
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """The program of an image. All paths except `top` are relative to `top`. The path `.` means `top`.

    Attributes:
        folder: the folder with the code.
        module: the module that `python -m` runs, or None.
        script: the file that `python` runs, or None.
        function: the function of `module` to call instead of running the module.
        file: the file with the program; None if the program comes from a wheel.
        search_path: the folders of PYTHONPATH.
        top: the folder that is /app in the image.
        home: the folder in which the program starts.
        include: further folders and files to copy, none of them inside `folder` or another included folder.
        files: the paths in `include` that are files.
    """

    folder: str
    module: str | None
    script: str | None
    file: str | None
    function: str | None = None
    search_path: tuple[str, ...] = ()
    top: Path = Path()
    home: str = "."
    include: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()

    @property
    def trainer(self) -> Trainer:
        """The value of `trainer`, with all keys, that starts this program from a spec in `top`."""
        script = posixpath.relpath(self.script, self.folder) if self.script else None
        return Trainer(
            source=self.folder,
            include=self.include,
            module=self.module,
            script=script,
            function=self.function,
            workdir=None if self.home == "." else self.home,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders and files with all code of the image. None of these paths is inside another."""
        is_included = any(_inside(self.folder, path) for path in self.include)
        return self.include if is_included else (self.folder, *self.include)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of Python that start the program."""
        return self.trainer.arguments

    @property
    def working_folder(self) -> str:
        """The folder in the image in which the program starts."""
        return posixpath.normpath(posixpath.join(APP, self.home))

    @property
    def python_path(self) -> str | None:
        """The PYTHONPATH that the program needs; None if it needs none."""
        folders = (posixpath.normpath(posixpath.join(APP, folder)) for folder in self.search_path)
        return ":".join(folders) or None

    @property
    def name(self) -> str:
        """The name of the module or script, for messages."""
        return self.module or self.script or ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the code is: `top` and `home` as in `EntryPoint`; `spec`, `source` and `include` are relative to `top`."""

    top: Path
    home: str
    spec: str
    source: str
    include: tuple[str, ...]

    def holds(self, file: str) -> bool:
        """Returns whether the image gets `file`."""
        return any(_inside(file, path) for path in (self.source, *self.include)) and (self.top / file).is_file()

    def shown(self, path: str) -> str:
        """Converts a path relative to `top` into a path relative to the spec's folder."""
        return posixpath.relpath(path, self.spec)


def find_entry_point(trainer: Trainer, folder: Path) -> EntryPoint:
    """Finds the program that `trainer` names, or else the only one in the source folder, without running any code.

    Args:
        trainer: the spec's `trainer`.
        folder: the spec's folder.

    Raises FieldError if the module or script does not exist, or if there are several programs and the spec names none.
    """
    if trainer.module and trainer.script:
        raise FieldError("a module and a script: expected only one", field="trainer.script", hint="remove one")
    place = _locate(trainer, folder)
    _check_function(trainer)
    if (place.top / place.source).is_file():
        entry = _of_file(trainer, place.source)
    elif trainer.script:
        entry = _script(place.source, _existing(trainer.script, place.source, place.top))
    elif trainer.module:
        entry = _module(trainer.module, place, trainer.function)
    else:
        entry = _only_program(place)
    include = _outermost(place.include, entry.folder)
    search_path = dict.fromkeys((*entry.search_path, *_search_path(place)))
    home = _find_home(trainer.workdir, place, (entry.folder, *include))
    if entry.module:  # Python searches the folder in which it starts
        search_path.pop(home, None)
    files = frozenset(path for path in include if (place.top / path).is_file())
    return replace(entry, top=place.top, home=home, include=include, files=files, search_path=tuple(search_path))


def _find_home(workdir: str | None, place: _Place, paths: tuple[str, ...]) -> str:
    """Returns the folder in which the program starts; raises FieldError if the image does not get that folder."""
    if workdir is None:
        return place.home
    folder = posixpath.normpath(posixpath.join(place.spec, workdir))
    is_there = any(_inside(folder, path) for path in paths)
    if not is_there or not (place.top / folder).is_dir():
        message = f"{quote(workdir)} is not a folder in trainer.source or trainer.include"
        raise FieldError(message, field="trainer.workdir", hint="choose another folder, or add it to trainer.include")
    return folder


def _locate(trainer: Trainer, folder: Path) -> _Place:
    source, *include = (posixpath.normpath(path.rstrip("/") or ".") for path in (trainer.source, *trainer.include))
    if not any(path.split("/")[0] == ".." for path in (source, *include)):
        return _Place(folder, ".", ".", source, tuple(include))
    own = os.path.realpath(folder)
    code, *others = (posixpath.normpath(posixpath.join(own, path)) for path in (source, *include))
    top = posixpath.commonpath([own, code, *others])
    home = posixpath.relpath(posixpath.commonpath([own, code]), top)
    own, code, *others = (posixpath.relpath(path, top) for path in (own, code, *others))
    return _Place(Path(top), home, own, code, tuple(others))


def _outermost(paths: tuple[str, ...], folder: str) -> tuple[str, ...]:
    """Returns the paths that are neither in `folder` nor in another one of `paths`."""
    others = sorted({path for path in paths if not _inside(path, folder)})
    return tuple(path for path in others if not any(path != other and _inside(path, other) for other in others))


def _inside(path: str, folder: str) -> bool:
    return folder in {".", path} or path.startswith(f"{folder}/")


def _search_path(place: _Place) -> Iterator[str]:
    """Yields the folders from which the program can import included modules, with `top` last."""
    for path in place.include:
        above = posixpath.dirname(path) or "."
        folder = place.top / path
        if folder.is_file() and not _inside(path, place.source):
            yield above
        elif (folder / "src").is_dir():
            yield posixpath.join(path, "src")
        elif any((folder / name).is_file() for name in PROJECT_FILES):
            yield path
        elif not _inside(path, place.source):
            yield above
            if not (folder / "__init__.py").is_file():
                yield path
    if place.home != ".":
        yield place.home
        yield "."


def _of_file(trainer: Trainer, file: str) -> EntryPoint:
    if trainer.module or trainer.script:
        field = "trainer.module" if trainer.module else "trainer.script"
        raise FieldError(f"the source {quote(file)} is the program", field=field, hint="remove this key")
    if not file.endswith(".py"):
        raise FieldError(f"expected a folder or a Python file, found {quote(file)}", field="trainer.source")
    return _script(posixpath.dirname(file) or ".", file)


def _script(source: str, file: str) -> EntryPoint:
    return EntryPoint(folder=source, module=None, script=file, file=file)


def _existing(script: str, source: str, folder: Path) -> str:
    file = posixpath.normpath(posixpath.join(source, script))
    if posixpath.isabs(script) or not _inside(file, source) or file.startswith("../"):
        raise FieldError(f"expected a file in {quote(source)}, found {quote(script)}", field="trainer.script")
    if not (folder / file).is_file():
        names = [path.name for path in (folder / file).parent.glob("*.py")]
        close = find_nearest(posixpath.basename(file), sorted(names))
        raise FieldError(
            f"there is no {file}", field="trainer.script", hint=f"did you mean {close}?" if close else None
        )
    return file


def _check_function(trainer: Trainer) -> None:
    if trainer.function is None:
        return
    if not trainer.module:
        raise FieldError("a function needs a module", field="trainer.function", hint="add trainer.module")
    if not re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", trainer.function, re.ASCII):
        raise FieldError(f"{quote(trainer.function)} is not a valid name of a function", field="trainer.function")


def _module(module: str, place: _Place, function: str | None = None) -> EntryPoint:
    source, top = place.source, place.top
    path = posixpath.join(*module.split("."))
    above = posixpath.dirname(source) or "."
    for root in map(posixpath.normpath, (place.home, source, posixpath.join(source, "src"), above, ".")):
        for name in (f"{path}.py", f"{path}/{'__main__' if function is None else '__init__'}.py"):
            file = posixpath.normpath(posixpath.join(root, name))
            if place.holds(file):
                return EntryPoint(
                    folder=source, module=module, script=None, function=function, search_path=(root,), file=file
                )
    first = module.partition(".")[0]
    roots = [top / root for root in (place.home, source, posixpath.join(source, "src"), ".")]
    own = posixpath.relpath(source, place.home).partition("/")[0]
    if first == own or any((root / first).is_dir() for root in roots):
        raise _missing_module(module, path, roots)
    return EntryPoint(folder=source, module=module, script=None, function=function, file=None)  # from a wheel


def _missing_module(module: str, path: str, roots: list[Path]) -> FieldError:
    parents = (root / posixpath.dirname(path) for root in roots)
    stems = sorted({path.stem for parent in parents for path in parent.glob("*.py") if path.stem != "__init__"})
    close = find_nearest(module.rpartition(".")[2], stems)
    hint = f"did you mean {'.'.join(filter(None, (module.rpartition('.')[0], close)))}?" if close else None
    return FieldError(f"there is no {path}.py", field="trainer.module", hint=hint)


def _only_program(place: _Place) -> EntryPoint:
    """Finds `task.py` or `__main__.py` in the source folder, else the only file with `if __name__ == "__main__"`."""
    source, folder = place.source, place.top
    package = posixpath.relpath(source, place.home).replace("/", ".")
    is_package = source != place.home and all(part.isidentifier() for part in package.split("."))
    for name, module in (("task.py", f"{package}.task"), ("__main__.py", package)):
        file = posixpath.normpath(posixpath.join(source, name))
        if (folder / file).is_file():
            return _module(module, place) if is_package else _script(source, file)
    programs = [posixpath.normpath(posixpath.join(source, name)) for name in _programs(folder / source)]
    if len(programs) == 1:
        return _script(source, programs[0])
    if not programs:
        missing = 'no task.py, no __main__.py and no file with `if __name__ == "__main__"`'
        message = f"{quote(place.shown(source))} has {missing}"
        raise FieldError(message, field="trainer", hint="name the program: trainer: {source: FOLDER, script: FILE}")
    shown = ", ".join(map(place.shown, programs[:_MOST_SHOWN]))
    hint = f"trainer: {place.shown(programs[0])}"
    raise FieldError(f"{quote(place.shown(source))} has {len(programs)} programs: {shown}", field="trainer", hint=hint)


def _programs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            is_small = path.is_file() and path.stat().st_size <= _LARGEST_FILE
            tree = parse_python(path.read_bytes()) if is_small else None
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if tree is not None and any(map(is_main_guard, tree.body)):
            yield path.name
