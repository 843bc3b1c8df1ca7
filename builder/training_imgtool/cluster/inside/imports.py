"""Reads which modules of wheels a program imports, in the order in which it does, without running it.

A part of `warm_program`, which runs in containers: the standard library only, and what `make_source` keeps of the text
has to run on Python 3.6.
"""
# Folders that others wrote, in Python that may be old:
# ruff: noqa: PTH208, PTH112, PTH113, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import NamedTuple

    class Event(NamedTuple):
        """What a program does before or as it imports: `kind` is `import` or `set`."""

        kind: str
        name: str
        words: tuple[str, ...]


_ENVIRON = ("environ", "os.environ")
_WRITES = ("update", "pop", "popitem", "clear", "setdefault", "__setitem__")


def is_wheels(folder: str) -> bool:
    """Tells whether an entry of sys.path has wheels."""
    return "/site-packages/" in folder + "/" or "/dist-packages/" in folder + "/"


def is_pythons(folder: str) -> bool:
    """Tells whether an entry of sys.path is the standard library's."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    real = os.path.realpath(folder)
    is_zip = os.path.basename(folder) == "python{}{}.zip".format(*sys.version_info[:2])
    return is_zip or real == library or (real.startswith(library + "/") and not is_wheels(folder))


def has_module(folder: str, name: str) -> bool:
    """Tells whether a folder has a module or a package of that name; a folder without `__init__` is neither."""
    place = os.path.join(folder, name)
    suffixes = importlib.machinery.all_suffixes()
    return any(os.path.isfile(place + end) or os.path.isfile(os.path.join(place, "__init__" + end)) for end in suffixes)


def list_shadows(folders: Iterable[str], loaded: Iterable[str]) -> list[str]:
    """Lists the top-level modules among `loaded` that the user's folders have, too: Python finds these first."""
    tops = {name.partition(".")[0] for name in loaded} - set(sys.builtin_module_names) - {"__main__"}
    found = set()
    for folder in folders:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        there = {name.partition(".")[0] for name in names}
        found |= {top for top in tops & there if has_module(folder, top)}
    return sorted(found)


class ProgramReader:
    """Follows a program through its own files.

    Args:
        folders: the user's entries of sys.path, the first first.
        wheels: the other entries.
    """

    def __init__(self, folders: list[str], wheels: list[str]) -> None:
        self._folders, self._wheels = folders, wheels
        self._seen: set[str] = set()
        self._events: list[Event] = []
        self._late: list[tuple[ast.AST, str]] = []
        self._writes_late = False

    def read_module(self, name: str) -> list[Event]:
        """Reads what `python -m NAME` runs."""
        self._read_names(name.rpartition(".")[0])
        path = self._find_file(name)
        if path is None or path.endswith("/__init__.py"):
            self._read_names(name)
            path = self._find_file(name + ".__main__")
            name += ".__main__"
        return self._finish(path, name.rpartition(".")[0])

    def read_script(self, path: str) -> list[Event]:
        """Reads what `python PATH` runs."""
        return self._finish(path, "")

    def read_code(self, code: str) -> list[Event]:
        """Reads what `python -c CODE` runs."""
        self._follow(ast.parse(code).body, "", is_main=True)
        return self._finish(None, "")

    def _finish(self, path: str | None, package: str) -> list[Event]:
        if path is not None:
            self._read_file(path, package, is_main=True)
        late, self._late = self._late, []
        while late and not self._writes_late:  # a function may set a variable before it imports what reads it
            for node, inside in late:
                self._follow((inner for inner in ast.walk(node) if _is_import(inner)), inside)
            late, self._late = self._late, []
        return list(dict.fromkeys(self._events))

    def _read_file(self, path: str, package: str, *, is_main: bool = False) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        try:
            with open(path, "rb") as stream:
                tree = ast.parse(stream.read(), path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return  # the program itself says so
        self._follow(tree.body, package, is_main=is_main)

    def _follow(self, nodes: Iterable[ast.AST], package: str, *, is_main: bool = False) -> None:
        """Follows statements in their order; functions wait until the modules have loaded."""
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name, ())
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*filter(None, above), *filter(None, [node.module])])
                self._import(base, tuple(alias.name for alias in node.names if alias.name != "*"))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._writes_late = self._writes_late or any(map(_writes_environment, ast.walk(node)))
                self._late.append((node, package))
            elif isinstance(node, ast.If):
                self._follow(_branches(node, is_main=is_main), package, is_main=is_main)
            elif isinstance(node, (ast.Try, ast.With, ast.For, ast.While, ast.ClassDef)):
                self._follow([*node.body, *getattr(node, "orelse", ())], package, is_main=is_main)
            else:
                self._events += _read_setting(node)

    def _import(self, name: str, words: tuple[str, ...]) -> None:
        top = name.partition(".")[0]
        if not top or top in sys.builtin_module_names:
            return
        spec = importlib.machinery.PathFinder.find_spec(top, self._wheels)
        if any(has_module(folder, top) for folder in self._folders) or spec is None:
            self._read_names(name)
            for word in words:
                self._read_names(name + "." + word)
        elif _is_from_wheel(spec):
            self._events.append(("import", name, words))  # type: ignore[arg-type]

    def _read_names(self, name: str) -> None:
        """Reads the user's files that an import of a dotted name loads, packages first."""
        parts = name.split(".") if name else []
        for end in range(1, len(parts) + 1):
            path = self._find_file(".".join(parts[:end]))
            if path is not None:
                is_package = path.endswith("/__init__.py")
                self._read_file(path, ".".join(parts[: end if is_package else end - 1]))

    def _find_file(self, name: str) -> str | None:
        for folder in self._folders:
            place = os.path.join(folder, *name.split("."))
            for path in (place + "/__init__.py", place + ".py"):
                if os.path.isfile(path):
                    return path
        return None


def _is_from_wheel(spec: importlib.machinery.ModuleSpec) -> bool:
    return any(is_wheels(os.path.dirname(place)) for place in places_of(spec))


def places_of(spec: importlib.machinery.ModuleSpec) -> list[str]:
    """Lists the files and folders that a module comes from."""
    return [*filter(None, [spec.origin]), *(str(place) for place in spec.submodule_search_locations or ())]


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _branches(node: ast.If, *, is_main: bool) -> list[ast.stmt]:
    """Returns what may run of an `if` as the module loads."""
    test = ast.dump(node.test)
    if "'TYPE_CHECKING'" in test:
        return node.orelse
    if "'__name__'" in test:
        return node.body if is_main else node.orelse
    return [*node.body, *node.orelse]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return _dotted(node.value) + "." + node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _writes_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return _dotted(node.value) in _ENVIRON and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call):
        owner, _, method = _dotted(node.func).rpartition(".")
        return method in ("putenv", "unsetenv") or (owner in _ENVIRON and method in _WRITES)
    return False


def _read_setting(node: ast.AST) -> Iterator[Event]:
    """Yields the variable that a statement sets to a value that stands in it."""
    values: list[ast.AST] = []
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        if _writes_environment(node.targets[0]):
            index: ast.AST = node.targets[0].slice
            values = [getattr(index, "value", index) if type(index).__name__ == "Index" else index, node.value]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _writes_environment(node.value):
        values = list(node.value.args)
    texts = [value.value if hasattr(value, "value") else getattr(value, "s", None) for value in values]
    if len(texts) == 2 and all(isinstance(text, str) for text in texts):
        kind = "default" if isinstance(node, ast.Expr) else "set"
        yield (kind, texts[0], (texts[1],))  # type: ignore[misc]
