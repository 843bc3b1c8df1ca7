"""Finds the Pythons whose standard library has the parts that a file uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from imgtool_project_reader.tables import load_tables


def find_pythons(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """Returns the limits on Python's version that a file sets, each with the first line that sets it.

    Ignores code in a `try` or under a check of a version, because such code may fail.
    """
    found: dict[str, int] = {}
    for node in _walk_sure(tree):
        for limit in _find_library(node):
            found[limit] = min(found.get(limit, 1 << 30), getattr(node, "lineno", 1))
    return tuple(sorted(found.items()))


def _walk_sure(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Try) or (isinstance(node, ast.If) and "version" in ast.unparse(node.test)):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _walk_sure(inner)


def _find_library(node: ast.AST) -> Iterator[str]:
    table: dict[str, str] = load_tables()["python_library"]
    names: list[str] = []
    if isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        names = [f"{node.value.id}.{node.attr}"]
    yield from (table[name] for name in names if name in table)
