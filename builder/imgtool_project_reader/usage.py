"""Lists the names that one file uses from other packages: dotted names, methods, and shapes of calls.

The notation is that of `[limits]` in the data file, whatever alias the file gives a module:

- `scipy.misc.imread`: a name of a package;
- `.ix`: an attribute of an object that is not a module;
- `librosa.load(2)`: a call with at least so many positional arguments; `yaml.load(alone)` has exactly one argument;
- `gensim.models.Word2Vec.size=`: a named argument;
- `.append=`: a method whose result the file uses; `.step/4`: a method with so many results.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SAYS = frozenset({"print", "info", "debug", "warning", "write", "display"})
_FAILS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError"})


def list_usage(tree: ast.Module) -> dict[str, int]:
    """Maps the names that a file uses to the line of the first use; skips code in a `try` that handles failures."""
    nodes = [*_walk_sure(tree)]
    aliases = _list_aliases(tree)
    used: dict[str, int] = {}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and _resolve(node, aliases)[0] != "."}
    insists = {id(inner) for node in nodes for asked in _list_insisting(node) for inner in ast.walk(asked)}
    for node in nodes:
        for name in _list_names(node, aliases) if id(node) not in inner else ():
            if ".__version__" not in name or id(node) not in insists:
                used.setdefault(name, getattr(node, "lineno", 1))
    return used


def _walk_sure(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Try) and _may_fail(node):
        for sure in (*node.orelse, *node.finalbody):
            yield from _walk_sure(sure)
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _walk_sure(inner)


def _may_fail(node: ast.Try) -> bool:
    """Tells whether a `try` handles the failure if a release lacks a name."""
    caught = {getattr(name, "id", "") for row in node.handlers if row.type for name in ast.walk(row.type)}
    return isinstance(node.body[0], ast.Import | ast.ImportFrom) or bool(caught & _FAILS)


def _list_aliases(tree: ast.Module) -> dict[str, str]:
    """Maps each alias to the full name of a module or of a name in a module; leaves out relative imports."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return aliases


def _list_names(node: ast.AST, aliases: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(level=0, module=str(module)):
            yield from (f"{module}.{alias.name}" for alias in node.names)
        case ast.Attribute():
            yield _resolve(node, aliases)
        case ast.Call():
            name = _resolve(node.func, aliases)
            yield from (f"{name}{shape}" for shape in _list_shapes(node)) if "." in name else ()
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call(func=ast.Attribute() as called)):
            yield f"{_resolve(called, aliases)}/{len(names)}"
        case ast.Assign(value=ast.Call(func=ast.Attribute() as called)):
            yield f"{_resolve(called, aliases)}="


def _list_shapes(call: ast.Call) -> Iterator[str]:
    yield from (f".{word.arg}=" for word in call.keywords if word.arg)
    if not any(isinstance(argument, ast.Starred) for argument in call.args):
        yield from (f"({count})" for count in range(1, len(call.args) + 1))
        yield from ["(alone)"] if len(call.args) == 1 and not call.keywords else []


def _resolve(node: ast.expr, aliases: dict[str, str]) -> str:
    """Returns the dotted name of an attribute of a module, `.name` for an attribute of another object, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    root = aliases.get(node.id, "") if isinstance(node, ast.Name) else ""
    if root:
        return ".".join([root, *reversed(parts)])
    return f".{parts[0]}" if parts else ""


def _list_insisting(node: ast.AST) -> Iterator[ast.AST]:
    """Yields code that only prints a release or ends the program, and has no branch for another release."""
    if isinstance(node, ast.Assert):
        yield node
    elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise):
        yield node.test
    elif isinstance(node, ast.Expr) and (not isinstance(node.value, ast.Call) or _called(node.value) in _SAYS):
        yield node


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
