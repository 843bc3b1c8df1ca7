"""Finds the imports of a Python file, and when they run, without running the file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training_imgtool.base.python_parser import is_main_guard, parse_python

_MAKES_FILES = re.compile(  # code that may write or download a module
    rb"\.\s*write(?:_text|_bytes|lines|str)?\s*\(|\bsubprocess\b|\bos\s*\.\s*(?:system|popen|spawn|symlink|rename)"
    rb"|\bexec\s*\(|\b(?:extractall|unpack_archive|urlretrieve|get_file|copyfile|copytree|copy2?|protoc)\b"
)
_FINDS_MORE = re.compile(  # code that changes where Python looks for modules, or that installs modules
    rb"\bsys\s*\.\s*(?:path|modules|meta_path|path_hooks)\b|\bfrom\s+sys\s+import\b|\b(?:addsitedir|addpackage)\b"
    rb"|\b(?:pip|conda)\b[\s\"',.]+(?:main|install)\b|\bextend_path\b"
)
_DYNAMIC = re.compile(  # code that may define names that do not appear in its text
    rb"\b(?:__getattr__|globals|locals|vars|setattr|exec|__dict__|modules)\b|\bimport\s*\(?\s*\*"
)
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")  # the fields in which statements contain statements


@dataclass(frozen=True, slots=True)
class Import:
    """An import.

    Attributes:
        line: its line in the file.
        module: the dotted name, without the leading dots, whose number is `level`.
        names: the names after `import` in `from x import`.
    """

    line: int
    module: str
    level: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One file.

    Attributes:
        imports: the imports that run whenever the module loads, outside of functions, conditions, `try` and `with`.
        main_imports: the imports that also run if the file is the program.
        inner_imports: the imports that run whenever one of its functions runs, outside of conditions, `try` and `with`.
        all_imports: every import, wherever it stands.
        opens_up_at: the first line of code that may change where Python looks for modules, or create modules.
    """

    imports: tuple[Import, ...]
    main_imports: tuple[Import, ...]
    inner_imports: tuple[Import, ...]
    all_imports: tuple[Import, ...]
    opens_up_at: int | None


def read_source(data: bytes, path: str, python: tuple[int, int]) -> Source:
    """Parses and compiles a file for a version of Python.

    Raises SyntaxError, ValueError, RecursionError or MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = _parse(data, path, python)
        compile(tree, path, "exec", dont_inherit=True)
    main = [inner for node in tree.body if is_main_guard(node) for inner in node.body]
    return Source(
        imports=tuple(_imports(tree.body)),
        main_imports=tuple(_imports(main)),
        inner_imports=tuple(_imports(_walk_functions([*tree.body, *main], is_inside=False))),
        all_imports=tuple(_imports(_walk_statements(tree))),
        opens_up_at=_find_opening(tree, main, data),
    )


def _parse(data: bytes, path: str, python: tuple[int, int]) -> ast.Module:
    """Parses a file as a version of Python does.

    For Python 3.8 or older, CPython's parser also refuses `with (a):`, which every version accepts. This function then
    parses the file as the newest version does.
    """
    try:
        return parse_python(data, path, python=python)
    except SyntaxError as error:
        if not error.msg.startswith("Parenthesized context managers"):
            raise
    return parse_python(data, path)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a third-party package.

    Attributes:
        imports: the imports that run whenever the module loads.
        names: all names to which the text assigns a value, except by `from . import x`; None if the code may define
            names that do not appear in its text.
    """

    imports: tuple[Import, ...]
    names: frozenset[str] | None


def read_module(data: bytes) -> Module:
    """Parses a module in the syntax of the running Python.

    Raises SyntaxError, ValueError, RecursionError or MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = parse_python(data)
    return Module(tuple(_imports(tree.body)), None if _DYNAMIC.search(data) else frozenset(_list_bound(tree)))


def _list_bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and (node.module or node.level != 1)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def may_define(data: bytes, name: str) -> bool:
    """Returns whether a module may define a name: its text contains the name, or code that creates names as it runs."""
    return not name.isascii() or bool(_DYNAMIC.search(data) or re.search(rb"\b%s\b" % name.encode(), data))


def _imports(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", node.level, tuple(alias.name for alias in node.names))


def _walk_functions(nodes: Iterable[ast.AST], *, is_inside: bool) -> Iterator[ast.AST]:
    for node in nodes:
        if is_inside:
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _walk_functions(node.body, is_inside=is_inside or not isinstance(node, ast.ClassDef))


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the statements in the order of `ast.walk`; skips expressions, on which `ast.walk` spends most time."""
    todo: deque[ast.AST] = deque([tree])
    while todo:
        node = todo.popleft()
        yield node
        for name in _BLOCKS:
            todo.extend(getattr(node, name, ()))


def _find_opening(tree: ast.Module, main: list[ast.stmt], data: bytes) -> int | None:
    data = _as_utf8(data)
    if not (_FINDS_MORE.search(data) or _MAKES_FILES.search(data)):
        return None
    code = _blank_prose(tree, data)
    lines = [code.count(b"\n", 0, match.start()) + 1] if (match := _FINDS_MORE.search(code)) else []
    if _MAKES_FILES.search(code):
        quiet = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef
        loud = (node for node in [*tree.body, *main] if not isinstance(node, quiet) and not is_main_guard(node))
        lines += [node.lineno for node in loud if any(isinstance(inner, ast.Call) for inner in ast.walk(node))]
    return min(lines, default=None)


def _as_utf8(data: bytes) -> bytes:
    """Returns a file that Python can parse in UTF-8, in which positions in the tree are those in the file."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data if encoding in {"utf-8", "utf-8-sig"} else data.decode(encoding).encode("utf-8", "replace")
    except (SyntaxError, UnicodeError, LookupError):
        return data


def _blank_prose(tree: ast.Module, data: bytes) -> bytes:
    """Blanks a file's comments, docstrings and other bare strings; line numbers do not change."""
    lines = data.splitlines(keepends=True)
    try:
        for node in _walk_statements(tree):
            value = node.value if isinstance(node, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                for number in range(value.lineno, (value.end_lineno or value.lineno) + 1):
                    start = value.col_offset if number == value.lineno else 0
                    end = value.end_col_offset if number == value.end_lineno else None
                    lines[number - 1] = lines[number - 1][:start] + (lines[number - 1][end:] if end else b"\n")
        for token in tokenize.generate_tokens(io.StringIO(data.decode("utf-8-sig", "replace")).readline):
            if token.type == tokenize.COMMENT:
                number = token.start[0] - 1
                lines[number] = (
                    lines[number].removesuffix(b"\n").removesuffix(b"\r").removesuffix(token.string.encode()) + b"\n"
                )
    except (tokenize.TokenError, SyntaxError, IndexError):  # the tokenizer refuses some texts that the parser accepts
        return data
    return b"".join(lines)
