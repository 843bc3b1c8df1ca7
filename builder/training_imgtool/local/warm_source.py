"""Converts a container's command to one that keeps the container warm, for several runs of the program."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from training_imgtool.model.spec import INIT

_PARTS = ("learn.py", "workers.py", "start.py", "warm_program.py")
_OF_ITSELF = re.compile(r"(?m)^from (?:__future__|training_imgtool)\b[^(\n]*(?:\([^)]*\))?\n")
_FLAGS = re.compile(r"-(?:[bBdEIOPqRsSuv]+|[WX].+)")
_TAKES_WORD = frozenset({"-W", "-X"})
_PYTHON = re.compile(r"(?:\A|/)python(?:3(?:\.\d+)?)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The parts of a container's command that starts Python.

    Attributes:
        init: the init before the interpreter; empty for none.
        python: the interpreter with its flags.
        kind: what Python runs: a `module`, a `script` or `code`.
        name: the module, script or code.
        rest: the arguments of the program.
    """

    init: tuple[str, ...]
    python: tuple[str, ...]
    kind: str
    name: str
    rest: tuple[str, ...]

    def command(self, token: str, **order: Any) -> tuple[str, ...]:
        """Returns the command of a warm container for this program; each answer in its output begins with `token`."""
        own = {"token": token, **self.describe(), "then": None}
        if self.kind == "code" and (then := read_command(self.rest)) and then.python == self.python:
            own["then"] = {**then.describe(), "words": [*self.rest], "rest": [*then.rest], "then": None}
        text = json.dumps({**own, "root": "/", "number": 0, "again": False, "cold": "", **order})
        return (*self.init, *self.python, "-c", read_source(), text, *self.rest)

    def describe(self) -> dict[str, Any]:
        """Returns what the first process needs to know about the program."""
        start = {"module": ["-m"], "code": ["-c"], "script": []}[self.kind]
        return {"kind": self.kind, "name": self.name, "argv": [*self.python, *start, self.name, *self.rest]}


def read_command(words: Sequence[str]) -> Program | None:
    """Parses a container's command; None if it does not start a Python program."""
    init = INIT if tuple(words[: len(INIT)]) == INIT else ()
    words = words[len(init) :]
    if not words or not _PYTHON.search(words[0]):
        return None
    at = 1
    while at < len(words) and (words[at] in _TAKES_WORD or _FLAGS.fullmatch(words[at])):
        at += 2 if words[at] in _TAKES_WORD else 1
    python, rest = tuple(words[:at]), tuple(words[at:])
    if len(rest) > 1 and rest[0] in {"-m", "-c"}:
        kind = "module" if rest[0] == "-m" else "code"
        return Program(init=init, python=python, kind=kind, name=rest[1], rest=rest[2:])
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return Program(init=init, python=python, kind="script", name=rest[0], rest=rest[1:])
    return None


@cache
def read_source() -> str:
    """Joins the source files of the first process of warm containers."""
    folder = files("training_imgtool.local.inside")
    text = "\n".join((folder / part).read_text() for part in _PARTS)
    return f"from __future__ import annotations\n{_OF_ITSELF.sub('', text)}"
