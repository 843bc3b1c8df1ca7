"""The rules of `package_graph.py`: imports point down, one adapter per third-party package, small modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import package_graph
from tests.package_graph import (
    ADAPTERS,
    GROUPS,
    LONGEST_MODULE,
    PACKAGE,
    PROGRAMS,
    arrows,
    circles,
    group_graph,
    group_of,
    imports,
    layers,
    lines_of,
    modules,
    path_of,
)

# What neither `imgtool --help` nor a push loads before it needs them.
HEAVY = ("docker", "google", "jinja2", "rich.live")


ARCHITECTURE = Path(__file__).resolve().parents[1] / "docs/architecture.md"
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def test_architecture_describes_every_group_from_the_ground_up() -> None:
    text = ARCHITECTURE.read_text()
    table = text.partition("\n## The groups\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \| \w", table, re.MULTILINE)
    assert sorted(described) == sorted(GROUPS), "docs/architecture.md has one line per group"
    for place, group in enumerate(described):
        assert set(GROUPS[group].split()) <= set(described[:place]), f"{group} stands above a group that it imports"
    files = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    checkout = ARCHITECTURE.parents[1]
    lost = [name for name in files if not any((root / name).exists() for root in (path_of("").parent, checkout))]
    assert files
    assert not lost, f"docs/architecture.md names {lost}"


def test_every_module_has_a_group() -> None:
    lost = [name for name in modules() if group_of(name) and group_of(name) not in GROUPS]
    assert not lost, f"add their group to GROUPS: {', '.join(lost)}"


def test_groups_import_only_what_the_table_allows() -> None:
    wrong = []
    for name, item, target in arrows():
        here, there = group_of(name), group_of(target)
        if here and there not in {"", here, *GROUPS[here].split()}:
            wrong.append(f"{name}:{item.line} imports {target}: {here} may import {GROUPS[here]}")
    assert not wrong, "\n".join(wrong)


def test_the_table_allows_no_more_than_is_used() -> None:
    graph = group_graph()
    unused = {group: sorted(set(below.split()) - graph[group]) for group, below in GROUPS.items()}
    assert not {group: groups for group, groups in unused.items() if groups}


def test_groups_have_a_ground() -> None:
    assert layers(group_graph())[0] == ["base"]


def test_no_modules_import_each_other() -> None:
    assert not circles()


@pytest.mark.parametrize("guard", ["def late():", "if TYPE_CHECKING:"])
def test_a_circle_inside_functions_is_found(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    planted = {
        "base.one": ast.parse("from training_imgtool.base.two import two"),
        "base.two": ast.parse(f"{guard}\n    from training_imgtool.base.one import one"),
    }
    everything = {**modules(), **planted}
    monkeypatch.setattr(package_graph, "modules", lambda: everything)
    assert circles() == [["base.one", "base.two"]]


def test_each_third_party_package_has_one_adapter() -> None:
    wrong = []
    for name, tree in modules().items():
        for item in imports(tree):
            package = item.target.partition(".")[0]
            if package == PACKAGE or package in sys.stdlib_module_names:
                continue
            allowed = ADAPTERS.get(package, ())
            if not any(name == a or (a.endswith("*") and name.startswith(a[:-1])) for a in allowed):
                wrong.append(f"{name}:{item.line} imports {package}, whose adapter is {allowed}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("package", "needs"),
    [("imgtool_debian_layers", {"backports", "compression"}), ("imgtool_project_reader", {"packaging"})],
)
def test_the_packages_beside_stand_alone(package: str, needs: set[str]) -> None:
    files = sorted((path_of("").parent.parent / package).glob("*.py"))
    allowed = {package, *needs, *sys.stdlib_module_names}
    found = {
        file.name: {item.target.partition(".")[0] for item in imports(ast.parse(file.read_text()))} for file in files
    }
    assert {name: names - allowed for name, names in found.items() if names - allowed} == {}
    assert len(files) > 10


def test_every_dependency_has_an_adapter() -> None:
    """What the package requires, as far as it is installed, and what its comment in pyproject.toml names."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    declared = project["dependencies"]
    providers = packages_distributions()
    installed = {canonicalize_name(name) for names in providers.values() for name in names}
    used = {canonicalize_name(name) for package in ADAPTERS for name in providers.get(package, ())}
    unused = {name for text in declared if (name := canonicalize_name(Requirement(text).name)) not in used} & installed
    assert not unused, f"no adapter imports {unused}"
    named = re.findall(
        r"((?:\w+/)+\w+\.py)(?=[\n,])",
        PYPROJECT.read_text().partition("\ndependencies")[2].partition("[project.scripts]")[0],
    )
    assert len(named) > 5
    assert not [name for name in named if not (path_of("").parent / name).is_file()]


@pytest.mark.parametrize("adapter", sorted({a for group in ADAPTERS.values() for a in group if "*" not in a}))
def test_every_adapter_is_used(adapter: str) -> None:
    packages = {package for package, group in ADAPTERS.items() if adapter in group}
    assert adapter in modules(), "remove it from ADAPTERS"
    assert packages & {item.target.partition(".")[0] for item in imports(modules()[adapter])}


def test_nothing_below_the_command_line_prints_or_reads_the_environment() -> None:
    outside = {"os": {"environ", "getenv", "chdir"}, "sys": {"argv", "stdout", "stderr", "exit"}}
    wrong = []
    for name, tree in modules().items():
        if group_of(name) in {"", "cli"} or name in PROGRAMS:  # the package's own __init__ knows its commands by name
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "input"}:
                wrong.append(f"{name}:{node.lineno} calls {node.func.id}")
            if isinstance(node, ast.Attribute) and name != "api":  # it begins a run, as a command does
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if node.attr in outside.get(owner, ()) or node.attr == "from_env":
                    wrong.append(f"{name}:{node.lineno} uses {owner}.{node.attr}")
    assert not wrong, "\n".join(wrong)


def test_modules_are_short_enough_to_read() -> None:
    long = {name: n for name in modules() if (n := lines_of(name)) > LONGEST_MODULE}
    assert not long, f"is each of these one thing? {long}"


def test_help_loads_nothing_heavy() -> None:
    program = (
        f"import sys, {PACKAGE}.cli.app\n"
        "sys.argv = ['imgtool', '--help']\n"
        f"import typer.main; command = typer.main.get_command({PACKAGE}.cli.app.command_line())\n"
        "command.main(args=['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert "Usage: " in done.stdout
    assert done.stderr.strip() == "[]"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Properties are named as values, and a verb of the command line has its help as its docstring."""
    wrong = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            if group_of(name) == "cli" and node.name in {name.split(".")[-1], "help_", "completion_", "version_"}:
                continue
            text = ast.get_docstring(node) or "Returns"
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and (not re.match(r"[A-Z][a-z]+s\b", text) or text.split()[0] in {"This", "Its", "As"}):
                wrong.append(f"{name}:{node.lineno} {node.name}: {text.splitlines()[0]}")
    assert not wrong, "a verb in the third person, such as Returns or Finds:\n" + "\n".join(wrong)
