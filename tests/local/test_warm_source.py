"""What is sent into warm containers, and which commands it can stand for."""

from __future__ import annotations

import ast
import json
import sys

import pytest

from training_imgtool.local.warm_source import read_command, read_source


def test_it_is_python_3_7_and_the_standard_library() -> None:
    tree = ast.parse(read_source(), feature_version=(3, 7))
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert len(read_source()) < 100_000  # one argument of a program holds 128 KiB (execve(2))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "-m", "trainer.task", "--x"], (("python",), "module", "trainer.task", ("--x",))),
        (["/opt/venv/bin/python3.11", "-u", "-W", "ignore", "-Xdev", "a/b.py"],
         (("/opt/venv/bin/python3.11", "-u", "-W", "ignore", "-Xdev"), "script", "a/b.py", ())),
        (["python3", "-BO", "-c", "print(1)", "-m"], (("python3", "-BO"), "code", "print(1)", ("-m",))),
        (["python", "folder"], None),
        (["python"], None),
        (["python", "-m"], None),
        (["python", "--version"], None),
        (["python-config", "x.py"], None),
        (["/bin/sh", "-c", "python x.py"], None),
        ([], None),
    ],
)  # fmt: skip
def test_commands(words: list[str], expected: tuple[object, ...] | None) -> None:
    program = read_command(words)
    assert (program and (program.python, program.kind, program.name, program.rest)) == expected


def test_the_command_of_a_warm_container() -> None:
    program = read_command(["python", "-u", "-m", "trainer.task", "--x"])
    assert program is not None
    *start, order, argument = program.command("T")
    assert start == ["python", "-u", "-c", read_source()]
    assert argument == "--x"
    assert json.loads(order)["argv"] == ["python", "-u", "-m", "trainer.task", "--x"]
