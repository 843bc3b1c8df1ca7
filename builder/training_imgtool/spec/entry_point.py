"""Which program a spec starts, from which files: the layouts of `trainer:`.

The image has the code below /app, under the path that it has in the spec's folder. Python starts there: `python -m
MODULE` finds modules below /app, `python FILE` those beside the file. Where a module lies deeper (`src/`), PYTHONPATH
names the folder that its name starts from.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.errors import FieldError
from training_imgtool.spec.model import APP, Trainer
from training_imgtool.spec.value_rules import find_nearest, quote

_LARGEST_FILE = 1 << 20  # bytes of a file that may be the program
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """The program of an image.

    Attributes:
        folder: the folder with the code, relative to the spec's; `.` for the spec's own.
        module: what `python -m` runs, or None.
        script: the file that `python` runs, relative to the spec's folder, or None.
        root: the folder that the module's name starts from, relative to the spec's; `.` for the spec's own.
        file: the file with the program, relative to the spec's folder; None when it comes from a wheel.
    """

    folder: str
    module: str | None
    script: str | None
    root: str
    file: str | None

    @property
    def trainer(self) -> Trainer:
        """The program as a spec names it in full."""
        script = posixpath.relpath(self.script, self.folder) if self.script else None
        return Trainer(source=self.folder, module=self.module, script=script)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The interpreter's arguments that start the program."""
        return self.trainer.arguments

    @property
    def python_path(self) -> str | None:
        """The value of PYTHONPATH that the program needs, or None."""
        return None if self.root == "." else posixpath.join(APP, self.root)

    @property
    def name(self) -> str:
        """The module or the script, for messages."""
        return self.module or self.script or ""


def find_entry_point(trainer: Trainer, folder: Path) -> EntryPoint:
    """Finds the program that `trainer` names, or the only one in its folder; runs and imports nothing.

    Raises FieldError: there is no such module or script, or several programs and no name.
    """
    source = trainer.source.strip("/") or "."
    if trainer.module and trainer.script:
        raise FieldError("a module and a script: one program starts", field="trainer.script", hint="remove one of them")
    if (folder / source).is_file():
        return _of_file(trainer, source)
    if trainer.script:
        return _script(source, _existing(trainer.script, source, folder))
    if trainer.module:
        return _module(trainer.module, source, folder)
    return _only_program(source, folder)


def _of_file(trainer: Trainer, file: str) -> EntryPoint:
    if trainer.module or trainer.script:
        field = "trainer.module" if trainer.module else "trainer.script"
        raise FieldError(f"{quote(file)} is the program already", field=field, hint="name its folder as the source")
    if not file.endswith(".py"):
        raise FieldError(f"expected a folder or a Python file, found {quote(file)}", field="trainer.source")
    return _script(posixpath.dirname(file) or ".", file)


def _script(source: str, file: str) -> EntryPoint:
    return EntryPoint(folder=source, module=None, script=file, root=".", file=file)


def _existing(script: str, source: str, folder: Path) -> str:
    file = posixpath.normpath(posixpath.join(source, script))
    if posixpath.isabs(script) or (source != "." and not file.startswith(f"{source}/")) or file.startswith("../"):
        raise FieldError(f"expected a file below {quote(source)}, found {quote(script)}", field="trainer.script")
    if not (folder / file).is_file():
        names = [path.name for path in (folder / file).parent.glob("*.py")]
        close = find_nearest(posixpath.basename(file), sorted(names))
        raise FieldError(
            f"there is no {file}", field="trainer.script", hint=f"did you mean {close}?" if close else None
        )
    return file


def _module(module: str, source: str, folder: Path) -> EntryPoint:
    place = posixpath.join(*module.split("."))
    for root in dict.fromkeys((".", source, posixpath.join(source, "src"), posixpath.dirname(source) or ".")):
        for name in (f"{place}.py", f"{place}/__main__.py"):
            file = posixpath.normpath(posixpath.join(root, name))
            if (source == "." or file.startswith(f"{source}/")) and (folder / file).is_file():
                return EntryPoint(folder=source, module=module, script=None, root=posixpath.normpath(root), file=file)
    first = module.partition(".")[0]
    roots = (Path(), Path(source), Path(source, "src"))
    if first == source.partition("/")[0] or any((folder / root / first).is_dir() for root in roots):
        raise _missing_module(module, place, source, folder)
    return EntryPoint(folder=source, module=module, script=None, root=".", file=None)  # from a wheel


def _missing_module(module: str, place: str, source: str, folder: Path) -> FieldError:
    parents = (folder / root / posixpath.dirname(place) for root in (".", source, posixpath.join(source, "src")))
    stems = sorted({path.stem for parent in parents for path in parent.glob("*.py") if path.stem != "__init__"})
    close = find_nearest(module.rpartition(".")[2], stems)
    hint = f"did you mean {'.'.join(filter(None, (module.rpartition('.')[0], close)))}?" if close else None
    return FieldError(f"there is no {place}.py", field="trainer.module", hint=hint)


def _only_program(source: str, folder: Path) -> EntryPoint:
    """`task.py` or `__main__.py` where the folder has one, else its only file with `if __name__ == "__main__"`."""
    package = source.replace("/", ".")
    is_package = source != "." and all(part.isidentifier() for part in package.split("."))
    for name, module in (("task.py", f"{package}.task"), ("__main__.py", package)):
        file = posixpath.normpath(posixpath.join(source, name))
        if (folder / file).is_file():
            return _module(module, source, folder) if is_package else _script(source, file)
    programs = [posixpath.normpath(posixpath.join(source, name)) for name in _programs(folder / source)]
    if len(programs) == 1:
        return _script(source, programs[0])
    if not programs:
        message = f'{quote(source)} has no task.py, no __main__.py and no file with `if __name__ == "__main__"`'
        raise FieldError(message, field="trainer", hint="name the program: trainer: {source: FOLDER, script: FILE}")
    shown = ", ".join(programs[:_MOST_SHOWN])
    hint = f"trainer: {programs[0]}"
    raise FieldError(f"{quote(source)} has {len(programs)} programs: {shown}", field="trainer", hint=hint)


def _programs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            is_small = path.is_file() and path.stat().st_size <= _LARGEST_FILE
            tree = ast.parse(path.read_bytes()) if is_small else None
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if tree is not None and any(map(_is_main_guard, tree.body)):
            yield path.name


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"__name__ == '__main__'", "'__main__' == __name__"}
