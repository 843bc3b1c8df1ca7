"""The text of the program that waits in warm containers, and how a container's command becomes it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from training_imgtool.core.python_parser import parse_python

_PARTS = ("imports.py", "trees.py", "reveal.py", "start.py", "warm_program.py")
_FLAGS = re.compile(r"-(?:[bBdEIOPqRsSuv]+|[WX].+)")
_TAKES_WORD = frozenset({"-W", "-X"})
_PYTHON = re.compile(r"(?:\A|/)python(?:3(?:\.\d+)?)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A container's command as far as it starts Python.

    Attributes:
        python: the interpreter with its flags.
        kind: what follows: a `module`, a `script` or `code`.
        name: that.
        rest: the words behind it, which are the program's.
    """

    python: tuple[str, ...]
    kind: str
    name: str
    rest: tuple[str, ...]

    def command(self, order: dict[str, Any]) -> tuple[str, ...]:
        """Returns the command of a warm container that becomes the program."""
        own = {"kind": self.kind, "name": self.name, "argv": self._words, "root": "/", "set": [], "without": []}
        return (*self.python, "-c", make_source(), json.dumps(own | order), *self.rest)

    @property
    def _words(self) -> list[str]:
        start = {"module": ["-m"], "code": ["-c"], "script": []}[self.kind]
        return [*self.python, *start, self.name, *self.rest]


def read_command(words: Sequence[str]) -> Program | None:
    """Reads a container's command; None if it starts anything but a Python program."""
    if not words or not _PYTHON.search(words[0]):
        return None
    at = 1
    while at < len(words) and (words[at] in _TAKES_WORD or _FLAGS.fullmatch(words[at])):
        at += 2 if words[at] in _TAKES_WORD else 1
    python, rest = tuple(words[:at]), tuple(words[at:])
    if len(rest) > 1 and rest[0] in {"-m", "-c"}:
        kind = "module" if rest[0] == "-m" else "code"
        return Program(python=python, kind=kind, name=rest[1], rest=rest[2:])
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return Program(python=python, kind="script", name=rest[0], rest=rest[1:])
    return None


@cache
def make_source() -> str:
    """Makes one text of the program's parts, without what older Pythons cannot read: annotations above all."""
    folder = files("training_imgtool.cluster.inside")
    body: list[ast.stmt] = []
    for part in _PARTS:
        body += _Plain().visit(parse_python((folder / part).read_text())).body
    text = ast.unparse(ast.fix_missing_locations(ast.Module(body=body, type_ignores=[])))
    return f"{text}\nwait_for_orders()\n"


class _Plain(ast.NodeTransformer):
    """Removes annotations, docstrings, and imports of this package and of the future."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        module = node.module or ""
        return None if module == "__future__" or module.startswith("training_imgtool") else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_typing else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign(targets=[node.target], value=node.value) if node.value else None

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node
