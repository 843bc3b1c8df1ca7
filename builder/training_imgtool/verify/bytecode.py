"""Compares bytecode with what an interpreter of its version makes of the source.

Python takes a .pyc file whose header says "unchecked" (PEP 552) whatever its source is by now, and RECORD has no hash
of it. Compilations of one source may differ in bytes, within one version of Python too, so code objects are compared,
without the names of files and the line tables. Releases of one version place jumps differently and save SWAPs that
others make (3.11.2 and 3.11.7 do), so neither counts: of a jump, its condition does. The text of this module runs
inside an image, or in an interpreter of its own on this machine: it needs the standard library only and keeps to
Python 3.7.
"""
# Foreign bytecode may do anything to its reader, and each way to fail is a difference:
# ruff: noqa: PTH123, BLE001, S302

from __future__ import annotations

import dis
import importlib.util
import marshal
import re
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BYTECODE = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.cpython-\d+(?:\.opt-(?P<level>\d))?\.pyc\Z")
_HEADER = 16  # bytes: the magic number, flags, and a hash of the source or its time and size
_PARTS = (
    "argcount", "posonlyargcount", "kwonlyargcount", "flags", "names", "varnames", "freevars", "cellvars", "name",
)  # fmt: skip
_JUMPS = frozenset(dis.hasjrel + dis.hasjabs)
_ALWAYS = frozenset(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"))
_NOTHING = frozenset(("NOP", "EXTENDED_ARG", "CACHE", "SWAP"))


def source_of(path: str) -> str | None:
    """The path of the source that a .pyc file in `__pycache__` stands for."""
    match = BYTECODE.match(path)
    return match.group("folder") + match.group("name") + ".py" if match else None


def differing_bytecode(files: list[list[str]]) -> list[str]:
    """Returns the paths of the bytecode that is not what this interpreter makes of its source.

    Files for another version of Python, which recompiles instead of reading them, do not count.

    Args:
        files: for each .pyc file its path in the image, where its source can be read, and where it can be read.
    """
    return [path for path, source, bytecode in files if not _is_compiled(path, source, bytecode)]


def _is_compiled(path: str, source: str, bytecode: str) -> bool:
    try:
        with open(bytecode, "rb") as stream:
            data = stream.read()
        if data[:4] != importlib.util.MAGIC_NUMBER:
            return True
        with open(source, "rb") as stream:
            text = stream.read()
        level = (BYTECODE.match(path) or {"level": None})["level"]
        made = compile(text, path, "exec", dont_inherit=True, optimize=int(level or 0))
        read = marshal.loads(data[_HEADER:])
        return any(bool(_shape(made, code_of) == _shape(read, code_of)) for code_of in (_bytes, _steps))
    except Exception:
        return False


def _shape(value: Any, code_of: Callable[[types.CodeType], Any]) -> Any:
    """A value that is equal for equal code; 1, 1.0 and True are equal in Python, and not here."""
    if isinstance(value, types.CodeType):
        parts = [_shape(getattr(value, "co_" + name), code_of) for name in _PARTS if hasattr(value, "co_" + name)]
        return ("code", *parts, code_of(value), tuple(_shape(const, code_of) for const in value.co_consts))
    if isinstance(value, (tuple, frozenset)):
        shapes = [_shape(item, code_of) for item in value]
        return (type(value).__name__, frozenset(shapes) if isinstance(value, frozenset) else tuple(shapes))
    return (type(value).__name__, repr(value) if isinstance(value, (float, complex)) else value)


def _bytes(code: types.CodeType) -> Any:
    """The instructions as they are: most files are equal so, and the comparison is quick."""
    return (code.co_code, getattr(code, "co_exceptiontable", b""))


def _steps(code: types.CodeType) -> Any:
    """The instructions that do something, with their arguments; of a jump only the condition."""
    steps: list[tuple[str, int | None]] = []
    for step in dis.get_instructions(code):
        if step.opcode in _JUMPS:
            if step.opname not in _ALWAYS:
                steps.append((step.opname.replace("FORWARD_", "").replace("BACKWARD_", ""), None))
        elif step.opname not in _NOTHING:
            steps.append((step.opname, step.arg))
    return steps
