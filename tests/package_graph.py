"""The package as its source shows it: modules, imports, groups; and the rules that both must keep.

`test_architecture.py` enforces the rules; `scripts/graph` prints the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "training_imgtool"
ROOT = Path(__file__).resolve().parents[1] / "builder" / PACKAGE

# Which groups a group may import from, from the ground up.
GROUPS: dict[str, str] = {
    "base": "",
    "model": "base",
    "resolve": "base model",
    "oci": "base model",
    "jobs": "base model",
    "plan": "base model oci resolve",
    "make": "base model oci plan resolve",
    "local": "base jobs make model oci plan",
    "verify": "base jobs make model oci plan resolve",
    "app": "base jobs local make model oci plan resolve verify",
    "cli": "app base jobs local make model oci plan resolve verify",
    "api": "app base local make model oci plan verify",
}

# The adapter of each third-party package: the only modules that may import it. A spec keeps every scalar as text, a job
# file is quoted for every YAML 1.1 reader: hence two readers of YAML.
ADAPTERS: dict[str, tuple[str, ...]] = {
    "backports": ("oci.layers.codecs",),
    "compression": ("oci.layers.codecs",),  # Python's own from 3.14 on
    "docker": ("make.engines.docker.client",),
    "google": ("oci.registry.auth.google", "oci.registry.artifact_registry"),
    "isal": ("base.inflate",),
    "jsonschema": ("jobs.rules.schemas",),
    "jinja2": ("model.recipe.jinja",),
    "imgtool_debian_layers": ("plan.debian_*", "make.library_check"),  # packages of their own beside this one
    "imgtool_project_reader": ("app.*",),
    "packaging": ("*",),  # versions and requirements as types: arithmetic, no effects
    "rich": ("cli.live_view",),
    "typer": ("cli.*",),
    "urllib3": ("base.http.pool", "base.http.connections", "base.http.errors"),
    "uv": ("resolve.wheels.uv",),
    "yaml": ("base.yamlfile.reader", "jobs.yamlio"),
}

_WARM = ("checkpoint_step", "learn", "start", "warm_program", "workers")
PROGRAMS = {"verify.smoke_program", *(f"local.inside.{part}" for part in _WARM)}  # processes of their own

LONGEST_MODULE = 450  # lines; no module is split only to stay below it


@dataclass(frozen=True)
class Import:
    """One import of `target` (a dotted name) on a line; `for_types` below TYPE_CHECKING, where nothing runs it."""

    target: str
    line: int
    for_types: bool


@cache
def modules() -> dict[str, ast.Module]:
    """Every module by its name below the package."""
    sources = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "_data":
            name = ".".join(parts).removesuffix("__init__").removesuffix(".")
            sources[name] = ast.parse(path.read_text(), filename=str(path))
    return sources


def path_of(module: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath(*module.split(".")) if module else ROOT
    package = path / "__init__.py"
    return package if package.exists() else path.with_suffix(".py")


def lines_of(module: str) -> int:
    """How many lines a module has."""
    return len(path_of(module).read_text().splitlines())


def group_of(module: str) -> str:
    """The group that a module lies in; empty for the package's own `__init__` and `__main__`."""
    return "" if module == "__main__" else module.partition(".")[0]


def imports(node: ast.AST, *, for_types: bool = False) -> Iterator[Import]:
    """Every import below `node`, inside functions and under TYPE_CHECKING too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from (Import(f"{child.module}.{alias.name}", child.lineno, for_types) for alias in child.names)
        else:
            guard = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from imports(child, for_types=for_types or guard)


def inside(target: str) -> str | None:
    """The module of this package that a dotted name is or lies in; None for names of others."""
    if target.partition(".")[0] != PACKAGE:
        return None
    name = target.removeprefix(PACKAGE).removeprefix(".")
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


def arrows() -> Iterator[tuple[str, Import, str]]:
    """Every import of one module of the package by another: importer, import, imported."""
    for name, tree in modules().items():
        for item in imports(tree):
            target = inside(item.target)
            if target is not None and target != name:
                yield name, item, target


def circles() -> list[list[str]]:
    """The groups of modules that import each other, however late: imports inside functions and for types count."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for name, _, target in arrows():
        graph[name].add(target)

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            ahead += (new := graph[ahead.pop()] - found)
            found |= new
        return found

    reached = {name: reach(name) for name in graph}
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted((list(group) for group in groups if group), key=len, reverse=True)


def group_graph() -> dict[str, set[str]]:
    """The groups that each group imports from."""
    graph: dict[str, set[str]] = {group: set() for group in GROUPS}
    for name, _, target in arrows():
        here, there = group_of(name), group_of(target)
        if here and there and here != there:
            graph.setdefault(here, set()).add(there)
    return graph


def layers(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups from the ground up, each above all that it imports; raises ValueError for a cycle."""
    left, ordered = dict(graph), []
    while left:
        ground = sorted(group for group, below in left.items() if not below & left.keys())
        if not ground:
            raise ValueError(f"these import each other: {sorted(left)}")
        ordered.append(ground)
        for group in ground:
            del left[group]
    return ordered
