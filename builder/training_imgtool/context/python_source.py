"""What the text of a Python file says without running it: its imports, and what only works in a notebook."""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from training_imgtool.core.json_cache import read_cached, write_cached
from training_imgtool.core.version import __version__

_FEWEST = 64  # files: fewer are parsed faster than remembered
_MOST_BYTES = 256 << 20
_COMMAND = re.compile(r"\s*[!%]")
_NOTEBOOK_NAMES = frozenset({"get_ipython", "display"})
_MAKES_FILES = re.compile(  # code that may write a module, or fetch one
    rb"\.\s*write(?:_text|_bytes|lines|str)?\s*\(|\bsubprocess\b|\bos\s*\.\s*(?:system|popen|spawn|symlink|rename)"
    rb"|\bexec\s*\(|\b(?:extractall|unpack_archive|urlretrieve|get_file|copyfile|copytree|copy2?|protoc)\b"
)
_DYNAMIC = re.compile(  # code that may define names that its text does not have
    rb"\b(?:__getattr__|globals|locals|vars|setattr|exec|__dict__|modules)\b|\bimport\s*\(?\s*\*"
)
_OTHER_ERRORS = frozenset(  # the built-in exceptions that catch no ImportError
    {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
    - {"BaseException", "Exception", "ImportError", "ModuleNotFoundError"}
)
_LEAVES = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
_SUPPRESSES_NOTHING = frozenset({"catch_warnings", "open", "redirect_stderr", "redirect_stdout"})
_FINDS_MORE = re.compile(  # code that changes where Python looks for modules, or installs some
    rb"\bsys\s*\.\s*(?:path|modules|meta_path|path_hooks)\b|\bfrom\s+sys\s+import\b|\b(?:addsitedir|addpackage)\b"
    rb"|\b(?:pip|conda)\b[\s\"',.]+(?:main|install)\b|\bextend_path\b"
)


@dataclass(frozen=True, slots=True)
class Import:
    """An import.

    Attributes:
        line: in the file.
        module: the dotted name, without the leading dots that `level` counts.
        names: what follows `import` in `from x import`.
        instead: the imports that run in its place if it fails, because a `try` catches the error.
        is_late: whether it runs only when a function does.
    """

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()
    instead: tuple[Import, ...] = ()
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One file.

    Attributes:
        imports: those that run when the module loads.
        notebook: the first line that calls what only a notebook defines, with the name.
        main_imports: those that run only when the file is the program.
        finds_more: the first line from which the code may change where Python looks for modules, or make some; or None.
    """

    imports: tuple[Import, ...]
    notebook: tuple[int, str] | None = None
    main_imports: tuple[Import, ...] = ()
    finds_more: int | None = None


def read_source(data: bytes, path: str, python: tuple[int, int]) -> Source:
    """Parses and compiles a file for a version of Python.

    Raises SyntaxError, ValueError, RecursionError or MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(data, path, feature_version=python)
        compile(tree, path, "exec", dont_inherit=True)
    main = [node for node in tree.body if is_main_guard(node)]
    call = None if _NOTEBOOK_NAMES.isdisjoint(re.findall(r"\w+", data.decode("latin-1"))) else find_notebook_call(tree)
    finds_more = _finds_more([*tree.body, *(inner for node in main for inner in node.body)], data)
    late = [replace(item, is_late=item.is_late or finds_more is not None) for item in _late_imports(tree, main)]
    main_imports = (*(item for node in main for item in _imports(node.body)), *late)
    return Source(tuple(_imports(tree.body)), call, main_imports, finds_more)


def may_define(data: bytes, name: str) -> bool:
    """Whether a module with this text may have a name: the text has it, or code that makes names at run time."""
    return not name.isascii() or bool(_DYNAMIC.search(data) or re.search(rb"\b%s\b" % name.encode(), data))


def _finds_more(body: list[ast.stmt], data: bytes) -> int | None:
    lines = [data.count(b"\n", 0, match.start()) + 1] if (match := _FINDS_MORE.search(data)) else []
    if _MAKES_FILES.search(data):
        quiet = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef
        loud = (node for node in body if not isinstance(node, quiet) and not is_main_guard(node))
        lines += [node.lineno for node in loud if any(isinstance(inner, ast.Call) for inner in ast.walk(node))]
    return min(lines, default=None)


def is_notebook_command(error: SyntaxError) -> bool:
    """Whether Python cannot parse a line because it is a command of a notebook, such as `!pip install x`."""
    return bool(error.text and _COMMAND.match(error.text))


@contextmanager
def remembered_sources(cache: Path, folder: Path, python: str) -> Iterator[MutableMapping[str, Source]]:
    """What files of `folder` said in earlier runs, by their SHA-256. Losing it costs time, nothing else."""
    form = " ".join(("rows", *Source.__slots__, *Import.__slots__))
    name = hashlib.sha256(
        "\0".join((__version__, form, python, str(folder.absolute()))).encode(errors="surrogateescape")
    )
    path = cache / "sources" / f"{name.hexdigest()}.json"
    cached = read_cached(path, _MOST_BYTES)
    before: dict[str, Any] = cached if isinstance(cached, dict) else {}
    sources = {sha256: _source(row) for sha256, row in before.items()}
    yield sources
    if len(sources.keys() - before.keys()) >= _FEWEST:
        write_cached(path, {sha256: _stored(source) for sha256, source in sources.items()}, _MOST_BYTES)


def _stored(source: Source) -> list[Any]:
    """A source as JSON has it: a row, which is smaller and read faster than a mapping."""
    rows = ([_row(item) for item in items] for items in (source.imports, source.main_imports))
    return [*rows, source.notebook, source.finds_more]


def _row(item: Import) -> list[Any]:
    return [item.line, item.module, item.level, item.names, [_row(other) for other in item.instead], item.is_late]


def _source(row: list[Any]) -> Source:
    imports, main_imports, notebook, finds_more = row
    call = tuple(notebook) if notebook else None
    return Source(tuple(map(_import, imports)), call, tuple(map(_import, main_imports)), finds_more)


def _import(row: list[Any]) -> Import:
    line, module, level, names, instead, is_late = row
    return Import(line, module, level, tuple(names), tuple(map(_import, instead)), is_late)


def sure_imports(tree: ast.Module) -> Iterator[Import]:
    """Yields the imports that run when a file is the program."""
    yield from _imports(tree.body)
    for node in tree.body:
        if is_main_guard(node):
            yield from _imports(node.body)


def _imports(body: list[ast.stmt]) -> Iterator[Import]:
    """Yields the imports that run whenever a module loads: not those in functions and conditions."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Try):
            yield from _tried_imports(node)
        elif _runs(node):
            yield from _imports(node.body)


def _tried_imports(node: ast.Try) -> Iterator[Import]:
    """Yields the imports of a `try`; where a handler catches their errors, only those with others in their place."""
    handler = next((handler for handler in node.handlers if _catches_import_errors(handler)), None)
    if handler is None or _leaves(handler.body):
        yield from _imports([*node.body, *node.orelse])
    elif instead := tuple(_imports(handler.body)):
        yield from (replace(item, instead=(*item.instead, *instead)) for item in _imports(node.body))
    yield from _imports(node.finalbody)


def _catches_import_errors(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return not all(isinstance(kind, ast.Name) and kind.id in _OTHER_ERRORS for kind in kinds)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a handler ends the program: nothing in it branches, and it raises or exits at its end."""
    *before, last = body
    if not all(isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign) for node in before):
        return False
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(last, ast.Raise) or (isinstance(call, ast.Call) and ast.unparse(call.func) in _LEAVES)


def _late_imports(tree: ast.Module, main: list[ast.If]) -> Iterator[Import]:
    """Yields the imports of a program's top-level functions.

    Those that begin a function that the program calls under its main guard run for sure, the others are late.
    """
    if not main:
        return
    called = {
        call.func.id
        for guard in main
        for node in guard.body
        if isinstance(node, ast.Expr | ast.Assign)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        is_called = node.name in called and names.count(node.name) == 1 and not node.decorator_list
        for number, statement in enumerate(node.body):
            is_called &= isinstance(statement, ast.Import | ast.ImportFrom) or (
                number == 0 and ast.get_docstring(node, clean=False) is not None
            )
            for item in _imports([statement]):
                yield replace(item, is_late=not is_called)


def _runs(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.With]:
    """Returns whether the statements in `node` always run, and an ImportError there ends the program.

    A `with` may be a `suppress(ImportError)` under any name but a few.
    """
    if isinstance(node, ast.With):
        calls = (ast.unparse(item.context_expr.func) for item in node.items if isinstance(item.context_expr, ast.Call))
        return [name.rpartition(".")[2] in _SUPPRESSES_NOTHING for name in calls] == [True] * len(node.items)
    return isinstance(node, ast.ClassDef)


def is_main_guard(node: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a statement is `if __name__ == "__main__":`."""
    texts = {"__name__ == '__main__'", "'__main__' == __name__"}
    return isinstance(node, ast.If) and ast.unparse(node.test) in texts


def find_notebook_call(tree: ast.Module) -> tuple[int, str] | None:
    """The first call of `get_ipython` or `display` that always runs and that nothing in the file defines."""
    names = _NOTEBOOK_NAMES - {name for node in ast.walk(tree) for name in _bound(node)}
    return next(_calls(tree.body, names), None)


def _calls(body: list[ast.stmt], names: frozenset[str]) -> Iterator[tuple[int, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.With | ast.Try | ast.If):
            if isinstance(node, ast.Try) and node.handlers:
                continue
            if isinstance(node, ast.If) and not is_main_guard(node):
                continue
            yield from _calls(node.body, names)
        elif isinstance(node, ast.Expr | ast.Assign):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in names:
                    yield inner.lineno, inner.func.id


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a value; `*` may be any."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield from _NOTEBOOK_NAMES if alias.name == "*" else [alias.asname or alias.name]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
