"""Makes Python's parser usable from several threads."""

from __future__ import annotations

import ast
import threading
from typing import TypeGuard

_ONE_AT_A_TIME = threading.Lock()


def parse_python(source: str | bytes, path: str = "<unknown>", *, python: tuple[int, int] | None = None) -> ast.Module:
    """Parses a module as the version `python` does, by default the running one; raises what `ast.parse` raises.

    In CPython 3.11, the parsers of all threads share one counter for the depth of the syntax tree. If two threads parse
    at once, the parser may raise SystemError (https://github.com/python/cpython/issues/106905).
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source, path, feature_version=python)


def is_main_guard(node: ast.stmt) -> TypeGuard[ast.If]:
    """Returns whether a statement is `if __name__ == "__main__":`."""
    texts = {"__name__ == '__main__'", "'__main__' == __name__"}
    return isinstance(node, ast.If) and ast.unparse(node.test) in texts
