"""Compares bytecode with what an interpreter of its version makes of the source.

Python takes a .pyc file whose header says "unchecked" (PEP 552) whatever its source is by now, and RECORD has no hash
of it. Releases of one version of Python compile a few files in a hundred differently, so a difference is no proof of
foreign code; only equality proves something. The text of this module runs inside an image, or in an interpreter of its
own on this machine: it needs the standard library only and keeps to Python 3.7.
"""
# Foreign bytecode may do anything to its reader, and each way to fail is a difference:
# ruff: noqa: PTH123, BLE001, S302

from __future__ import annotations

import importlib.util
import io
import json
import marshal
import re
import sys
import types
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

BYTECODE = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.cpython-\d+(?:\.opt-(?P<level>\d))?\.pyc\Z")
_HEADER = 16  # bytes: the magic number, flags, and a hash of the source or its time and size


def name_source(path: str) -> str | None:
    """The path of the source that a .pyc file in `__pycache__` stands for."""
    match = BYTECODE.match(path)
    return match.group("folder") + match.group("name") + ".py" if match else None


def compare_listed(_: dict[str, Any]) -> None:
    """Reads the files that `find_differing_bytecode` takes from stdin and prints what it returns, both as JSON."""
    warnings.simplefilter("ignore")
    json.dump(find_differing_bytecode(json.load(sys.stdin)), sys.stdout)


def find_differing_bytecode(files: list[list[str]]) -> list[str]:
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
        name = "/" + str(name_source(path)).lstrip("/")
        made = compile(text, name, "exec", dont_inherit=True, optimize=int(level or 0))
        read = marshal.load(io.BytesIO(data[_HEADER:]))
        return isinstance(read, types.CodeType) and _dump(made) == _dump(read)
    except Exception:
        return False


def _dump(code: types.CodeType) -> list[bytes]:
    """Writes all of a code object; `marshal` shares equal objects from version 3 on, as their owners happen to do.

    It writes instructions without what an interpreter made of them, but runs specialised ones as they are.
    """
    inner = [part for const in code.co_consts if isinstance(const, types.CodeType) for part in _dump(const)]
    return [marshal.dumps(code, 2), getattr(code, "_co_code_adaptive", b""), *inner]
