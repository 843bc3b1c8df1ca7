"""Concludes from a file's syntax, and from what it takes from the standard library, which Pythons can run it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from imgtool_project_reader.tables import load_tables

_GENERIC = frozenset({"dict", "frozenset", "list", "set", "tuple", "type"})
_NODES: dict[str, str] = {"Match": ">=3.10", "NamedExpr": ">=3.8", "TryStar": ">=3.11", "TypeAlias": ">=3.12"}
_KEYWORDS = {("dataclass", "slots"): ">=3.10", ("dataclass", "kw_only"): ">=3.10", ("zip", "strict"): ">=3.10"}


def find_pythons(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """Returns the specifier sets of Python that a file needs, each with the first line that does.

    What stands in a `try`, or below a question about a version, counts for nothing: it may fail.
    """
    found: dict[str, int] = {}
    is_late = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and "annotations" in _list_names(node)
        for node in tree.body
    )
    for node in _walk_sure(tree):
        for limit in (*_find_syntax(node, is_late=is_late), *_find_library(node)):
            found[limit] = min(found.get(limit, 1 << 30), getattr(node, "lineno", 1))
    return tuple(sorted(found.items()))


def _walk_sure(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Try) or (isinstance(node, ast.If) and "version" in ast.unparse(node.test)):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _walk_sure(inner)


def _find_syntax(node: ast.AST, *, is_late: bool) -> Iterator[str]:
    if limit := _NODES.get(type(node).__name__):
        yield limit
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        yield from [">=3.8"] if arguments.posonlyargs else []
        yield from [">=3.12"] if getattr(node, "type_params", None) else []
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        written = [*(item.annotation for item in every if item and item.annotation), node.returns]
        yield from () if is_late else _find_annotations(written)
    elif isinstance(node, ast.AnnAssign) and not is_late:
        yield from _find_annotations([node.annotation])
    elif isinstance(node, ast.Call):
        words = {word.arg for word in node.keywords}
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        yield from (limit for (called, word), limit in _KEYWORDS.items() if name == called and word in words)


def _find_annotations(annotations: list[ast.expr | None]) -> Iterator[str]:
    """Yields what annotations need that Python evaluates as the module loads, such as `list[int]` and `int | None`."""
    for node in (inner for item in annotations if item for inner in ast.walk(item)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _GENERIC:
            yield ">=3.9"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield ">=3.10"


def _find_library(node: ast.AST) -> Iterator[str]:
    """Yields what names of the standard library need."""
    table: dict[str, str] = load_tables()["python_library"]
    if isinstance(node, ast.ImportFrom) and not node.level:
        names = [f"{node.module}.{name}" for name in _list_names(node)]
        yield from (table[name] for name in (node.module or "", *names) if name in table)
    elif isinstance(node, ast.Import):
        yield from (table[alias.name] for alias in node.names if alias.name in table)
    elif isinstance(node, ast.Attribute):
        owner = f"{node.value.id}." if isinstance(node.value, ast.Name) else ""
        yield from (table[name] for name in (f"{owner}{node.attr}", f".{node.attr}") if name in table)


def _list_names(node: ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names]
