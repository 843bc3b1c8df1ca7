"""Records which functions each test reaches, in every process that the test starts.

A copy of the package notes each function that begins in a table shared by a worker of pytest and all that it starts.
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NOTES = '''\
import mmap
import os


def _table():
    """The table of the nearest ancestor that has one: a worker of pytest."""
    process = os.getpid()
    while process > 1:
        path = f"{folder}/{{process}}"
        try:
            if os.path.exists(path):
                with open(path, "r+b") as stream:
                    return mmap.mmap(stream.fileno(), 0)
            with open(f"/proc/{{process}}/stat") as stream:
                process = int(stream.read().rpartition(")")[2].split()[1])
        except OSError:  # another user may not write it
            break
    return bytearray({size})


NOTED = _table()
'''
_PLUGIN = '''\
import json
import os
import time
from pathlib import Path

import pytest

FOLDER = Path({folder!r})
(FOLDER / str(os.getpid())).write_bytes(bytes({size}))
from training_imgtool._noted import NOTED  # in this process' own table

_shared = {{}}


def _reached():
    return {{number for number, noted in enumerate(NOTED[:]) if noted}}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What a fixture of several tests reaches, each of them reaches."""
    if fixturedef.scope == "function":
        return (yield)
    before = NOTED[:]
    NOTED[:] = bytes({size})
    try:
        return (yield)
    finally:
        _shared[fixturedef] = _reached()
        NOTED[:] = bytes(map(max, before, NOTED[:]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    NOTED[:] = bytes({size})
    started = time.monotonic()
    result = yield
    seconds = time.monotonic() - started
    reached = _reached().union(*(
        _shared.get(one, ()) for group in item._fixtureinfo.name2fixturedefs.values() for one in group
    ))
    line = {{"test": item.nodeid, "seconds": round(seconds, 3), "passed": item.stash.get(_passed, False),
            "reached": sorted(reached)}}
    with (FOLDER / f"{{os.getpid()}}.jsonl").open("a") as stream:
        print(json.dumps(line), file=stream)
    return result


_passed = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    elif report.failed:
        item.stash[_passed] = False
    return report
'''


@dataclass(frozen=True, slots=True)
class Test:
    """A test that passed: its id, its seconds, and how many functions it reached."""

    name: str
    seconds: float
    breadth: int

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


@dataclass(slots=True)
class Reach:
    """The tests that reach each function, `MODULE.py:QUALIFIED.NAME`, of a recorded run."""

    tests: list[Test] = field(default_factory=list)
    functions: dict[str, list[int]] = field(default_factory=dict)

    def of(self, module: str, function: str) -> list[Test]:
        """Returns the tests of a function: by its module and name, its name alone if it moved, else by its module."""
        found = {f"{module}:{function}"} & self.functions.keys()
        found = found or {name for name in self.functions if function and name.endswith(f":{function}")}
        found = found or {name for name in self.functions if name.startswith(f"{module}:")}
        return [self.tests[number] for number in sorted({test for name in found for test in self.functions[name]})]

    def write(self, path: Path) -> None:
        """Writes the record."""
        tests = [[test.name, test.seconds, test.breadth] for test in self.tests]
        path.write_text(json.dumps({"tests": tests, "functions": self.functions}))


def read(path: Path) -> Reach:
    """Reads a record."""
    document = json.loads(path.read_text())
    return Reach([Test(*row) for row in document["tests"]], document["functions"])


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yields every function with its qualified name, those inside others too."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        below = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
        yield from functions(child, f"{prefix}{below}." if below else prefix)


def function_at(source: bytes, line: int) -> str:
    """Returns the name of the innermost function around a line; empty outside of all."""
    around = [(node.lineno, name) for name, node in functions(ast.parse(source)) if node.lineno <= line <= _end(node)]
    return max(around, default=(0, ""))[1]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def instrument(package: Path, folder: Path, alone: tuple[str, ...]) -> list[str]:
    """Has each function of a package's copy note itself; returns the functions, and writes pytest's plugin.

    Args:
        package: the copy, which is changed.
        folder: where the tables, the plugin `noting` and the results of the tests go.
        alone: modules that also run without the package, which stay as they are.
    """
    names: list[str] = []
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        if not module.startswith(alone):
            path.write_text(_noting(module, path.read_text(), names))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (package / "_noted.py").write_text(_NOTES.format(folder=folder, size=len(names)))
    (folder / "noting.py").write_text(_PLUGIN.format(folder=str(folder), size=len(names)))
    return names


def _noting(module: str, source: str, names: list[str]) -> str:
    tree = ast.parse(source)
    lines = source.split("\n")
    added: dict[int, str] = {}
    for name, node in functions(tree):
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            first = node.body[1]
        at = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))])
        if at > node.lineno and not lines[at - 1][: first.col_offset].strip():
            added[at - 1] = f"{' ' * first.col_offset}_NOTED[{len(names)}] = 1"
            names.append(f"{module}:{name}")
    starts = [
        node.end_lineno or 0 for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    for at in sorted(added, reverse=True):
        lines.insert(at, added[at])
    if added:
        lines.insert(max(starts, default=0), "from training_imgtool._noted import NOTED as _NOTED")
    return "\n".join(lines)


def collect(folder: Path, names: list[str]) -> Reach:
    """Reads what the tests noted in `folder`."""
    reach = Reach()
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            noted = json.loads(line)
            if noted["passed"]:
                for number in noted["reached"]:
                    reach.functions.setdefault(names[number], []).append(len(reach.tests))
                reach.tests.append(Test(noted["test"], noted["seconds"], len(noted["reached"])))
    return reach
