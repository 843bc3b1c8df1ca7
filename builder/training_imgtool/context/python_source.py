"""What the text of a Python file says without running it: its imports, and what only works in a notebook."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

from training_imgtool import __version__
from training_imgtool.core.json_cache import read_cached, write_cached

_FEWEST = 64  # files: fewer are parsed faster than remembered
_MOST_BYTES = 256 << 20
_COMMAND = re.compile(r"\s*[!%]")
_NOTEBOOK_NAMES = frozenset({"get_ipython", "display"})
_FINDS_MORE = re.compile(  # code that changes where Python looks for modules, or installs some
    rb"\bsys\s*\.\s*(?:path|modules|meta_path|path_hooks)\b|\bfrom\s+sys\s+import\b|\b(?:addsitedir|addpackage)\b"
    rb"|\b(?:pip|conda)\b[\s\"',.]+(?:main|install)\b|\bextend_path\b"
)


@dataclass(frozen=True, slots=True)
class Import:
    """An import that runs when its module loads; `level` counts the leading dots, `names` follow `import`."""

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One file.

    Attributes:
        imports: those that run when the module loads.
        notebook: the first line that calls what only a notebook defines, with the name.
        main_imports: those that run only when the file is the program.
        finds_more: whether the code may change where Python looks for modules, or install some.
    """

    imports: tuple[Import, ...]
    notebook: tuple[int, str] | None = None
    main_imports: tuple[Import, ...] = ()
    finds_more: bool = False


def read_source(data: bytes, path: str, python: tuple[int, int]) -> Source:
    """Parses and compiles a file for a version of Python.

    Raises SyntaxError, ValueError, RecursionError or MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(data, path, feature_version=python)
        compile(tree, path, "exec", dont_inherit=True)
    main = [node for node in tree.body if isinstance(node, ast.If) and is_main_guard(node.test)]
    call = None if _NOTEBOOK_NAMES.isdisjoint(re.findall(r"\w+", data.decode("latin-1"))) else _notebook_call(tree)
    main_imports = tuple(item for node in main for item in _imports(node.body))
    return Source(tuple(_imports(tree.body)), call, main_imports, _FINDS_MORE.search(data) is not None)


def is_notebook_command(error: SyntaxError) -> bool:
    """Whether Python cannot parse a line because it is a command of a notebook, such as `!pip install x`."""
    return bool(error.text and _COMMAND.match(error.text))


@contextmanager
def remembered_sources(cache: Path, folder: Path, python: str) -> Iterator[MutableMapping[str, Source]]:
    """What files of `folder` said in earlier runs, by their SHA-256. Losing it costs time, nothing else."""
    form = " ".join(Source.__slots__)
    name = hashlib.sha256(
        "\0".join((__version__, form, python, str(folder.absolute()))).encode(errors="surrogateescape")
    )
    path = cache / "sources" / f"{name.hexdigest()}.json"
    cached = read_cached(path, _MOST_BYTES)
    before: dict[str, Any] = cached if isinstance(cached, dict) else {}
    sources = {sha256: _source(fields) for sha256, fields in before.items()}
    yield sources
    if len(sources.keys() - before.keys()) >= _FEWEST:
        write_cached(path, {sha256: asdict(source) for sha256, source in sources.items()}, _MOST_BYTES)


def _source(fields: dict[str, Any]) -> Source:
    imports, main_imports = (
        tuple(Import(**{**item, "names": tuple(item["names"])}) for item in fields[key])
        for key in ("imports", "main_imports")
    )
    notebook = tuple(fields["notebook"]) if fields["notebook"] else None
    return Source(imports, notebook, main_imports, fields["finds_more"])


def _imports(body: list[ast.stmt]) -> Iterator[Import]:
    """Yields the imports that run whenever a module loads: not those in functions, conditions and guarded `try`."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names))
        elif _runs(node):
            yield from _imports(node.body)


def _runs(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.Try]:
    """Returns whether the statements in `node` always run, and an ImportError there ends the program.

    A `with` may be a `suppress(ImportError)` under any name.
    """
    return isinstance(node, ast.ClassDef) or (isinstance(node, ast.Try) and not node.handlers)


def is_main_guard(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return ast.unparse(test) in {"__name__ == '__main__'", "'__main__' == __name__"}


def _notebook_call(tree: ast.Module) -> tuple[int, str] | None:
    """The first call of `get_ipython` or `display` that always runs and that nothing in the file defines."""
    names = _NOTEBOOK_NAMES - {name for node in ast.walk(tree) for name in _bound(node)}
    return next(_calls(tree.body, names), None)


def _calls(body: list[ast.stmt], names: frozenset[str]) -> Iterator[tuple[int, str]]:
    for node in body:
        if _runs(node) or isinstance(node, ast.With) or (isinstance(node, ast.If) and is_main_guard(node.test)):
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
