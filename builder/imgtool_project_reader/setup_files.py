"""Reads setup.py and setup.cfg, the files of setuptools, without running any code."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping
from typing import Any

from imgtool_project_reader.requirement_files import harmless, line_finder
from imgtool_project_reader.statement import Fact, Statement, parse_requirement

_REQUIREMENTS_NAME = re.compile(r"(?:[\w.-]+/)*(?:requirements|reqs)[\w./-]*\.(?:txt|in)")


@harmless
def read_setup_cfg(text: str, file: str) -> Iterator[Statement]:
    """Reads a setup.cfg."""
    parser, line = configparser.ConfigParser(interpolation=None), line_finder(text)
    parser.read_string(re.sub(r"[^\S\n]{20,}", " ", text))  # configparser tries each place of a run of blanks
    if name := parser.get("metadata", "name", fallback=""):
        yield Statement(Fact.NAME, name, file, line(name))
    if limit := parser.get("options", "python_requires", fallback=""):
        yield Statement(Fact.PYTHON, limit, file, line("python_requires"))
    groups = {"": parser.get("options", "install_requires", fallback="")}
    if parser.has_section("options.extras_require"):
        groups |= {f"extra {key}": value for key, value in parser.items("options.extras_require")}
    for group, value in groups.items():
        for item in value.splitlines():
            if match := re.fullmatch(r"\s*file:\s*(\S+)\s*", item):
                yield Statement(Fact.INCLUDE, match[1], file, line(item))
            elif requirement := parse_requirement(item.partition("#")[0]):
                yield Statement(Fact.PACKAGE, str(requirement), file, line(item.strip()), group=group)
    for item in parser.get("options.entry_points", "console_scripts", fallback="").splitlines():
        if "=" in item:
            yield Statement(Fact.SCRIPT, re.sub(r"\s*=\s*", "=", item.strip(), count=1), file, line(item.strip()))


@harmless
def read_setup_py(text: str, file: str) -> Iterator[Statement]:
    """Reads a setup.py without running it: evaluates lists, sums of lists, and variables with lists."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    assigned: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, node.value)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    setups = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "setup"]
    for word in (word for call in setups for word in call.keywords):
        yield from _read_setup_word(word.arg or "", _literal(word.value, assigned), file, word.value.lineno)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _REQUIREMENTS_NAME.fullmatch(node.value):
            yield Statement(Fact.INCLUDE, node.value, file, node.lineno)


def _read_setup_word(word: str, value: object, file: str, line: int) -> Iterator[Statement]:
    """Reads one argument of setup()."""
    facts = {"name": Fact.NAME, "python_requires": Fact.PYTHON}
    if word in facts and isinstance(value, str):
        yield Statement(facts[word], value, file, line)
    elif word == "install_requires":
        yield from _packages(value, file, line, "")
    elif word == "extras_require" and isinstance(value, dict):
        for extra, items in value.items():
            yield from _packages(items, file, line, f"extra {extra}")
    elif word == "entry_points" and isinstance(value, dict):
        for item in value.get("console_scripts", ()):
            if isinstance(item, str) and "=" in item:
                yield Statement(Fact.SCRIPT, re.sub(r"\s*=\s*", "=", item, count=1), file, line)


def _packages(value: object, file: str, at: int, group: str) -> Iterator[Statement]:
    items = value.splitlines() if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    for item in items:
        if isinstance(item, str) and (requirement := parse_requirement(item.partition("#")[0])):
            yield Statement(Fact.PACKAGE, str(requirement), file, at, group=group)


def _literal(node: ast.expr | None, assigned: Mapping[str, ast.expr], depth: int = 0) -> Any:
    """Evaluates literals. Leaves out other expressions in a list; returns None for other expressions elsewhere."""
    value: Any = None
    node = node if depth < 20 else None
    match node:
        case ast.Constant():
            value = node.value
        case ast.Name():
            value = _literal(assigned.get(node.id), assigned, depth + 1)
        case ast.List() | ast.Tuple() | ast.Set():
            value = [item for inner in node.elts for item in _items(inner, assigned, depth) if item is not None]
        case ast.Dict():
            keys = [_literal(key, assigned, depth + 1) for key in node.keys]
            items = [_literal(item, assigned, depth + 1) for item in node.values]
            value = {key: item for key, item in zip(keys, items, strict=True) if isinstance(key, str)}
        case ast.JoinedStr():
            parts = [_literal(part, assigned, depth + 1) for part in node.values]
            value = "".join(parts) if all(isinstance(part, str) for part in parts) else None
        case ast.FormattedValue(value=inner):
            value = _literal(inner, assigned, depth + 1)
        case (
            ast.Subscript(value=inner, slice=key)
            | ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[key, *_])
        ):
            table = _literal(inner, assigned, depth + 1)
            default = (
                _literal(node.args[1], assigned, depth + 1) if isinstance(node, ast.Call) and node.args[1:] else None
            )
            value = table.get(_literal(key, assigned, depth + 1), default) if isinstance(table, dict) else default
        case ast.BinOp(op=ast.Add()):
            value = _add(*(_literal(side, assigned, depth + 1) for side in (node.left, node.right)))
    return value


def _items(node: ast.expr, assigned: Mapping[str, ast.expr], depth: int) -> list[Any]:
    value = _literal(node.value if isinstance(node, ast.Starred) else node, assigned, depth + 1)
    return value if isinstance(value, list) else [value]  # some people write a list in a list


def _add(left: object, right: object) -> object:
    if isinstance(left, list) or isinstance(right, list):
        return [*(left if isinstance(left, list) else ()), *(right if isinstance(right, list) else ())]
    return left + right if isinstance(left, str) and isinstance(right, str) else None
