"""Finds the programs of a folder: Python files that run something, their options, and how an image would start them.

Nothing is imported or run: the files are parsed.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from training_imgtool.context.python_source import is_main_guard, start_imports

_MOST_FILES = 2000
_LARGEST_FILE = 1 << 20  # bytes
_NOTEBOOK_NAMES = frozenset({"get_ipython", "display"})
_DEEPEST = 5  # folders inside each other
_SKIPPED = re.compile(r"\..*|__pycache__|build|dist|docs?|env|venv|node_modules|site-packages|tests?|.*\.egg-info")
_TEST = re.compile(r"test_.*|.*_test\.py|setup\.py|conftest\.py|noxfile\.py")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")  # a folder that `trainer.source` takes
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMAND = re.compile(rb"(?m)^(?P<indent>[ \t]*)[!%][^\n]*")  # of a notebook
_TRAINS = frozenset({"fit", "fit_generator", "train", "train_and_evaluate", "train_on_batch", "minimize"})
_STARTS = frozenset({"main", "train", "run", "app.run", "tf.app.run", "tf.compat.v1.app.run"})
_TENSORFLOW = frozenset({"keras", "tensorflow", "tf_keras"})
_STRATEGIES = frozenset({"MultiWorkerMirroredStrategy", "ParameterServerStrategy"})
_USUAL_NAMES = ("task", "train", "trainer", "main", "__main__")
_OPTION = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MARKS = frozenset({"mark_flag_as_required", "mark_flags_as_required"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python file that runs something.

    Attributes:
        path: below the folder that was searched.
        options: its options and required arguments, in the order of the file.
        imports: the first names of its absolute imports.
        console_script: the name that the project installs it under, where its file alone starts nothing.
        notebook_line: the first line with a command or a call that only a notebook understands.
    """

    path: PurePosixPath
    options: tuple[Option, ...]
    imports: frozenset[str]
    console_script: str | None = None
    notebook_line: int | None = None

    @property
    def has_job_dir(self) -> bool:
        """Whether it takes `--job-dir`."""
        return any(option.name == "--job-dir" for option in self.options)


@dataclass(frozen=True, slots=True)
class Code:
    """The Python code of a folder.

    Attributes:
        programs: the one that most likely trains comes first.
        strategies: those of tf.distribute that any file names.
        missing: the first names of the imports that the standard library, the folder and TensorFlow do not provide.
    """

    programs: tuple[Program, ...]
    strategies: frozenset[str]
    missing: tuple[str, ...] = ()


def read_code(folder: Path, command: tuple[str, ...] = (), scripts: Mapping[str, str] | None = None) -> Code:
    """Reads the Python files below `folder`.

    A program is a file with `if __name__ == "__main__"`, one that trains as it loads, or the function of a console
    script.

    Args:
        folder: of the project.
        command: how a container of it starts; the program that this names comes first.
        scripts: its console scripts, name to MODULE:FUNCTION.
    """
    programs: list[Program] = []
    strategies: set[str] = set()
    imports: dict[str, None] = {}
    own = {"src"}
    targets = {target.partition(":")[0].strip(): name for name, target in (scripts or {}).items()}
    for path in _python_files(folder):
        below = PurePosixPath(path.relative_to(folder).as_posix())
        own |= {*below.parts[:-1], below.stem}
        tree, line = _parse(path)
        if tree is None:
            continue
        strategies |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & _STRATEGIES
        imports |= dict.fromkeys(item.module.partition(".")[0] for item in start_imports(tree) if not item.level)
        script = targets.get(".".join(below.with_suffix("").parts).removeprefix("src.").removesuffix(".__init__"))
        if script or _is_program(tree):
            name = None if _is_program(tree) else script
            call = _find_notebook_call(tree)
            line = line or (call[0] if call else None)
            programs.append(_program(below, tree, console_script=name, notebook_line=line))
    missing = tuple(name for name in imports if name not in own and name not in sys.stdlib_module_names)
    return Code(tuple(sorted(programs, key=partial(_rank, command))), frozenset(strategies), missing)


def _is_program(tree: ast.Module) -> bool:
    """Returns whether a file runs something: under a main guard, or as it loads."""
    return any(map(is_main_guard, tree.body)) or any(
        (isinstance(call.func, ast.Attribute) and call.func.attr in _TRAINS) or ast.unparse(call.func) in _STARTS
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
    )


def find_trainer(program: Program, folder: Path) -> str | None:
    """Returns the value of `trainer:` that starts `program`; None when a folder's name cannot stand in a Dockerfile.

    A program that imports its own package from above its folder, or lies in `src`, starts as a module.
    """
    parts = program.path.parts
    if program.console_script is not None:
        return f"{{source: ., script: {program.console_script}}}"
    if not all(map(_PART.fullmatch, parts[:-1])):
        return None
    root = _import_root(program, folder)
    names = () if root is None else (*parts[len(root) : -1], program.path.stem)
    if root is None or len(names) == 1 or not all(map(_NAME.fullmatch, names)):
        return str(program.path)
    others = (program.imports & _importable(folder.joinpath(*root))) - {names[0]}
    source = "/".join(root) or ("." if others else names[0])
    module = ".".join(names[:-1] if names[-1] == "__main__" else names)  # `python -m` finds a __main__.py
    return f"{{source: {source}, module: {module}}}"


def _python_files(folder: Path) -> Iterator[Path]:
    seen = 0
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not _SKIPPED.fullmatch(name) and depth < _DEEPEST)
        for name in sorted(files):
            path = Path(place, name)
            if name.endswith(".py") and not _TEST.fullmatch(name):
                seen += 1
                if seen > _MOST_FILES:
                    return
                if path.is_file() and not path.is_symlink() and str(path.relative_to(folder)).isprintable():
                    yield path


def _parse(path: Path) -> tuple[ast.Module | None, int | None]:
    """Returns a file's syntax tree, or None and the line of a notebook's command if Python cannot read it."""
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST_FILE else b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return ast.parse(data), None
            except SyntaxError:
                command = _COMMAND.search(data)
                tree = ast.parse(_COMMAND.sub(rb"\g<indent>pass", data))
                return tree, data.count(b"\n", 0, command.start()) + 1 if command else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None, None


def _program(
    path: PurePosixPath, tree: ast.Module, *, console_script: str | None, notebook_line: int | None
) -> Program:
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.add(node.module.partition(".")[0])
    return Program(
        path=path,
        options=read_options(tree),
        imports=frozenset(imports),
        console_script=console_script,
        notebook_line=notebook_line,
    )


def _rank(command: tuple[str, ...], program: Program) -> tuple[bool, bool, bool, int, int, str]:
    """Sorts by what the container starts first, programs that use TensorFlow, usual names, and height in the tree."""
    stem = program.path.stem
    usual = _USUAL_NAMES.index(stem) if stem in _USUAL_NAMES else len(_USUAL_NAMES)
    package = program.path.parent.name in {"trainer", "training"}
    return (
        not _is_started(program, command),
        not (program.imports & _TENSORFLOW or package),
        not package,
        usual,
        len(program.path.parts),
        str(program.path),
    )


def _is_started(program: Program, command: tuple[str, ...]) -> bool:
    """Returns whether a command names the program: as a file of the same name, a module, or a console script."""
    module = ".".join(program.path.with_suffix("").parts).removeprefix("src.").removesuffix(".__main__")
    files = {PurePosixPath(word).name for word in command if word.endswith(".py")}
    return program.path.name in files or bool({module, program.console_script} & {*command})


def _import_root(program: Program, folder: Path) -> tuple[str, ...] | None:
    """Returns the folders that lead to where the program's own imports start; None when it has none."""
    folders = program.path.parts[:-1]
    for depth in range(len(folders) + 1):
        names = _importable(folder.joinpath(*folders[:depth]))
        if program.imports & names - {"src"}:
            return folders[:depth]
    return folders[:1] if len(folders) > 1 and folders[0] == "src" else None


def _importable(folder: Path) -> frozenset[str]:
    """Returns the modules and packages that a folder on sys.path offers."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    modules = {entry.stem for entry in entries if entry.suffix == ".py"}
    return frozenset(modules | {entry.name for entry in entries if entry.is_dir() and any(entry.glob("*.py"))})


@dataclass(frozen=True, slots=True)
class Option:
    """An option, such as `--epochs`, or an argument without dashes."""

    name: str
    required: bool


def read_options(tree: ast.Module) -> tuple[Option, ...]:
    """Returns the options and the required arguments of a program, in the order of its file."""
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda call: call.lineno)
    options = {option.name: option for call in calls if (option := _option(call))}
    marked = {f"--{name}" for call in calls if _name(call) in _MARKS for name in _texts(call)}
    return tuple(Option(name, option.required or name in marked) for name, option in options.items())


def _option(call: ast.Call) -> Option | None:
    """Returns the option or the required argument that a call defines."""
    name, texts = _name(call), [*_texts(call)]
    is_required = any(word.arg == "required" and _is_true(word.value) for word in call.keywords)
    if name.startswith("DEFINE_") and texts and _ARGUMENT.fullmatch(texts[0]):
        return Option(f"--{texts[0]}", is_required)
    if name not in {"add_argument", "option", "argument"}:
        return None
    long = next((text for text in texts if _OPTION.fullmatch(text)), None)
    if long is not None:
        return Option(long, is_required)
    is_optional = any(word.arg in {"nargs", "default"} for word in call.keywords)
    is_argument = name in {"add_argument", "argument"} and len(texts) == 1 and _ARGUMENT.fullmatch(texts[0])
    return Option(texts[0], required=True) if is_argument and not is_optional else None


def _name(call: ast.Call) -> str:
    """Returns the last part of the name of what is called."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _texts(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        nodes = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _find_notebook_call(tree: ast.Module) -> tuple[int, str] | None:
    """Returns the first call of `get_ipython` or `display` that always runs and that nothing in the file defines."""
    names = _NOTEBOOK_NAMES - {name for node in ast.walk(tree) for name in _bound(node)}
    return next(_calls(tree.body, names), None)


def _calls(body: list[ast.stmt], names: frozenset[str]) -> Iterator[tuple[int, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.With) or (isinstance(node, ast.If) and is_main_guard(node)):
            yield from _calls(node.body, names)
        elif isinstance(node, ast.Expr | ast.Assign):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in names:
                    yield inner.lineno, inner.func.id


def _bound(node: ast.AST) -> Iterator[str]:
    """Yields the names that a node gives a value; `*` may be any."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield from _NOTEBOOK_NAMES if alias.name == "*" else [alias.asname or alias.name]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
