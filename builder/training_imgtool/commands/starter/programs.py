"""Finds the programs of a folder: Python files that run something, their options, and how an image would start them.

Nothing is imported or run: the files are parsed.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MOST_FILES = 2000
_LARGEST_FILE = 1 << 20  # bytes
_DEEPEST = 5  # folders inside each other
_SKIPPED = re.compile(r"\..*|__pycache__|build|dist|docs?|env|venv|node_modules|site-packages|tests?|.*\.egg-info")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")  # a folder that `trainer.source` takes
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*")
_TENSORFLOW = frozenset({"keras", "tensorflow", "tf_keras"})
_STRATEGIES = frozenset({"MultiWorkerMirroredStrategy", "ParameterServerStrategy"})
_USUAL_NAMES = ("task", "train", "trainer", "main", "__main__")


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option that a program defines with argparse."""

    name: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python file that runs something.

    Attributes:
        path: below the folder that was searched.
        options: its argparse options, in the order of the file.
        imports: the first names of its absolute imports.
    """

    path: PurePosixPath
    options: tuple[Option, ...]
    imports: frozenset[str]

    @property
    def has_job_dir(self) -> bool:
        """Whether it takes `--job-dir`."""
        return any(option.name in {"--job-dir", "--job_dir"} for option in self.options)


@dataclass(frozen=True, slots=True)
class Code:
    """The Python code of a folder: its programs, and the strategies of tf.distribute that any of its files names."""

    programs: tuple[Program, ...]
    strategies: frozenset[str]


def read_code(folder: Path) -> Code:
    """Reads the Python files below `folder`.

    A program is a file with `if __name__ == "__main__"`; the one that most likely trains comes first.
    """
    programs, strategies = [], set()
    for path in _python_files(folder):
        if tree := _parse(path):
            strategies |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & _STRATEGIES
            if any(map(_is_main_guard, tree.body)):
                programs.append(_program(PurePosixPath(path.relative_to(folder).as_posix()), tree))
    return Code(tuple(sorted(programs, key=_rank)), frozenset(strategies))


def find_trainer(program: Program, folder: Path) -> str | None:
    """The value of `trainer:` that starts `program`; None when a folder's name cannot stand in a Dockerfile.

    A program that imports its own package from above its folder, or lies in `src`, starts as a module.
    """
    parts = program.path.parts
    if not all(map(_PART.fullmatch, parts[:-1])):
        return None
    root = _import_root(program, folder)
    names = () if root is None else (*parts[len(root) : -1], program.path.stem)
    if root is None or len(names) == 1 or not all(map(_NAME.fullmatch, names)):
        return str(program.path)
    others = (program.imports & _importable(folder.joinpath(*root))) - {names[0]}
    source = "/".join(root) or ("." if others else names[0])
    return f"{{source: {source}, module: {'.'.join(names)}}}"


def _python_files(folder: Path) -> Iterator[Path]:
    seen = 0
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not _SKIPPED.fullmatch(name) and depth < _DEEPEST)
        for name in sorted(files):
            path = Path(place, name)
            if name.endswith(".py") and not name.startswith("test_") and name not in {"setup.py", "conftest.py"}:
                seen += 1
                if seen > _MOST_FILES:
                    return
                if path.is_file() and not path.is_symlink() and str(path.relative_to(folder)).isprintable():
                    yield path


def _parse(path: Path) -> ast.Module | None:
    """A file's syntax tree; None when it is no Python that can be read."""
    try:
        return ast.parse(path.read_bytes()) if path.stat().st_size <= _LARGEST_FILE else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _program(path: PurePosixPath, tree: ast.Module) -> Program:
    imports: set[str] = set()
    options: dict[str, Option] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and (option := _option(node)):
            options.setdefault(option.name, option)
    return Program(path=path, options=tuple(options.values()), imports=frozenset(imports))


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"__name__ == '__main__'", "'__main__' == __name__"}


def _option(call: ast.Call) -> Option | None:
    """The long option of an `add_argument` call."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return None
    texts = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    name = next((text for text in texts if _OPTION.fullmatch(text)), None)
    required = any(
        word.arg == "required" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )
    return Option(name, required) if name else None


def _rank(program: Program) -> tuple[bool, bool, int, int, str]:
    """Programs that use TensorFlow first, then the usual names, then those that lie higher up."""
    stem = program.path.stem
    usual = _USUAL_NAMES.index(stem) if stem in _USUAL_NAMES else len(_USUAL_NAMES)
    package = program.path.parent.name in {"trainer", "training"}
    return (
        not (program.imports & _TENSORFLOW or package),
        not package,
        usual,
        len(program.path.parts),
        str(program.path),
    )


def _import_root(program: Program, folder: Path) -> tuple[str, ...] | None:
    """The folders that lead to where the program's own imports start; None when it has none."""
    folders = program.path.parts[:-1]
    for depth in range(len(folders) + 1):
        names = _importable(folder.joinpath(*folders[:depth]))
        if program.imports & names - {"src"}:
            return folders[:depth]
    return folders[:1] if len(folders) > 1 and folders[0] == "src" else None


def _importable(folder: Path) -> frozenset[str]:
    """The modules and packages that a folder on sys.path offers."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    modules = {entry.stem for entry in entries if entry.suffix == ".py"}
    return frozenset(modules | {entry.name for entry in entries if entry.is_dir() and any(entry.glob("*.py"))})
