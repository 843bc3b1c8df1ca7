"""The shape of the package, read from its source: imports point down, each third-party package has one door.

The rules are the data at the top. A new module belongs to a layer: add it there, as low as it can be.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "builder"

# From the bottom up. A module may import its own layer and those below. `name.*` is all that lies in a package.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "ground",
        (
            "",
            "errors",
            "records",
            "resources",
            "signals",
            "tasks",
            "secret_text",
            "substitution",
            "terminal",
            "yamlerrors",
        ),
    ),
    ("values", ("http_pool", "parallel", "progress", "reference", "settings", "wheel_tags", "yamltext", "yamltree")),
    ("files", ("entries", "files", "gittree", "gomatch", "kept")),
    (
        "spec",
        (
            "spec",
            "spec_file",
            "spec_kinds",
            "spec_memo",
            "spec_reader",
            "spec_rules",
            "schema",
            "starter",
            "requirements",
        ),
    ),
    ("matrix", ("compat", "compat_data", "base_image", "plan", "packages")),
    (
        "choices",
        (
            "lock",
            "lock_file",
            "lock_kept",
            "lock_memo",
            "rules",
            "rules_cuda",
            "rules_requirements",
            "install_set",
            "resolve",
            "compat_table",
        ),
    ),
    (
        "wheels",
        ("index", "index_login", "index_page", "pip_settings", "resolver_uv", "sdist_wheel", "wheels", "locker"),
    ),
    ("dockerfile", ("dockerfile", "dockerfile_lines", "dockerfile_rules", "evaluate")),
    ("context", ("context", "context_scan", "context_tar", "dockerignore", "hash_memo", "keys", "secrets", "bake")),
    ("templates", ("render", "render_memo", "render_child", "template_values")),
    ("engine interface", ("engines",)),
    ("jobs", ("jobs", "jobs.*")),
    ("registry", ("registry", "registry.*")),
    ("makers", ("bases", "engines.*", "direct", "direct.*")),
    ("composition", ("stages", "inputs", "work", "direct_way", "overview", "checkup", "cleanup", "verify", "verify.*")),
    ("roads", ("engine_road", "direct_road", "direct_stages", "local_road")),
    ("verbs", ("pipeline", "jobfile", "cluster", "cluster.*", "verify.session")),
    ("command line", ("cli", "cli.*")),
)

# Third-party packages and the only modules that may import them. Two readers of YAML and one writer, because a spec
# keeps every scalar as text, the matrix is data of our own, and a job file is quoted for every YAML 1.1 reader.
DOORS: dict[str, tuple[str, ...]] = {
    "docker": ("engines.docker",),
    "google": ("registry.google",),
    "httptools": ("registry.http1",),
    "isal": ("direct.codecs",),
    "jinja2": ("render_child",),
    "rich": ("cli.progress",),
    "typer": ("cli.*",),
    "urllib3": ("http_pool", "registry.proxied"),
    "uv": ("resolver_uv",),
    "yaml": ("yamltext", "jobs.yamlio"),
    "zlib_ng": ("direct.codecs",),
    "zstandard": ("direct.codecs",),
}
FREE = {"packaging"}  # versions and requirements as types: arithmetic, no effects
OF_THE_COMMAND_LINE = ("cli", "cli.*")  # the only ones that print and read the environment

LONGEST = 300  # lines of a module
LONGER = {"spec": 360}  # a list of keys with a line of documentation each, and nothing else

# What `imgtool --help` must not load.
HEAVY = ("docker", "google", "jinja2", "urllib3", "yaml", "rich.progress", "rich.live", "uv", "http.client", "asyncio")


@dataclass(frozen=True)
class Import:
    """One import of `target` (a dotted name) on a line; `at_start` when loading the module runs it."""

    target: str
    line: int
    at_start: bool


def _matches(module: str, patterns: tuple[str, ...]) -> bool:
    return any(module == p or (p.endswith("*") and module.startswith(p[:-1])) for p in patterns)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its name below `builder`."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "_data":
            name = ".".join(parts).removesuffix("__init__").removesuffix(".")
            found[name] = ast.parse(path.read_text(), filename=str(path))
    return found


def _path(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imports(node: ast.AST, *, at_start: bool = True) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_start) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            for alias in child.names:
                yield Import(f"{child.module}.{alias.name}", child.lineno, at_start)
        else:
            runs = not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            yield from _imports(child, at_start=at_start and runs)


def _inside(target: str) -> str | None:
    """The module of this package that a dotted name is or lies in; None for names of others."""
    if target.split(".", maxsplit=1)[0] != "builder":
        return None
    name = target.removeprefix("builder").removeprefix(".")
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


def _layer(module: str) -> int | None:
    exact = [i for i, (_, patterns) in enumerate(LAYERS) if module in patterns]
    wild = [i for i, (_, patterns) in enumerate(LAYERS) if _matches(module, patterns)]
    return next(iter(exact + wild), None)


def test_every_module_has_a_layer() -> None:
    lost = [name for name in modules() if _layer(name) is None]
    assert not lost, f"add to LAYERS: {', '.join(lost)}"


def test_imports_point_down() -> None:
    wrong = []
    for name, tree in modules().items():
        own = _layer(name)
        for found in _imports(tree):
            target = _inside(found.target)
            below = _layer(target) if target is not None else None
            if own is not None and below is not None and below > own:
                wrong.append(f"{name}:{found.line} ({LAYERS[own][0]}) imports {target} ({LAYERS[below][0]})")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        name: {t for i in _imports(tree) if i.at_start and (t := _inside(i.target)) not in {None, "", name}}
        for name, tree in modules().items()
    }
    for package in [name for name in graph if any(other.startswith(f"{name}.") for other in graph)]:
        graph[package] -= {name for name in graph if name.startswith(f"{package}.")}  # a package may show its modules
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {sorted(graph)}"


def test_each_third_party_package_has_one_door() -> None:
    wrong = []
    for name, tree in modules().items():
        for found in _imports(tree):
            package = found.target.split(".")[0]
            if package == "builder" or package in sys.stdlib_module_names or package in FREE:
                continue
            if not _matches(name, DOORS.get(package, ())):
                wrong.append(f"{name}:{found.line} imports {package}: its door is {DOORS.get(package, 'nowhere')}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("door", sorted({d for doors in DOORS.values() for d in doors if not d.endswith("*")}))
def test_every_door_is_used(door: str) -> None:
    packages = {package for package, doors in DOORS.items() if door in doors}
    assert door in modules(), "remove it from DOORS"
    assert packages & {found.target.split(".")[0] for found in _imports(modules()[door])}, "remove it from DOORS"


def test_nothing_below_the_command_line_prints_or_reads_the_environment() -> None:
    wrong = []
    for name, tree in modules().items():
        if _matches(name, OF_THE_COMMAND_LINE):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "input"}:
                wrong.append(f"{name}:{node.lineno} calls {node.func.id}")
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                forbidden = {"os.environ", "os.getenv", "sys.argv", "sys.stdout", "sys.stderr", "sys.exit", "os.chdir"}
                if text in forbidden or node.attr == "from_env":
                    wrong.append(f"{name}:{node.lineno} uses {text}")
    assert not wrong, "\n".join(wrong)


def test_modules_are_short_enough_to_read() -> None:
    lines = {name: len(_path(name).read_text().splitlines()) for name in modules()}
    long = {name: n for name, n in lines.items() if n > LONGER.get(name, LONGEST)}
    assert not long, f"split them: {long}"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, builder.cli.app\n"
        "sys.argv = ['imgtool', '--help']\n"
        "import typer.main; command = typer.main.get_command(builder.cli.app.command_line())\n"
        "command.main(args=['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert "Usage: " in done.stdout
    assert done.stderr.strip() == "[]"


def test_a_push_loads_nothing_heavy() -> None:
    """What one line of changed code needs, to a registry without TLS."""
    needed = (
        "cli.main, cli.making, pipeline, inputs, registry.connect, registry.plain, direct_road, registry.manifest_put"
    )
    unwanted = (
        *HEAVY,
        "typer",
        "rich",
        "ssl",
        "email",
        "http",
        "logging",
        "dataclasses",
        "inspect",
        "random",
        "datetime",
    )
    program = (
        f"import sys, {', '.join(f'builder.{name}' for name in needed.split(', '))}\n"
        f"print([name for name in {unwanted!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"
