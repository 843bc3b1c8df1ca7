"""Bytecode beside its source: what counts as a difference, and what two releases of one Python may do differently."""

from __future__ import annotations

import dis
import importlib.util
import marshal
from pathlib import Path
from types import CodeType

import pytest

from training_imgtool.verify.bytecode import differing_bytecode

SOURCE = "def check(word):\n    if word:\n        return True\n    return False\n"


def compiled(change: bytes, by: bytes) -> CodeType:
    """The module, with the code of its function changed at one place."""
    module = compile(SOURCE, "/m.py", "exec", dont_inherit=True)
    (function,) = (const for const in module.co_consts if isinstance(const, CodeType))
    code = function.co_code
    assert code.count(change) >= 1
    changed = function.replace(co_code=code.replace(change, by, 1))
    return module.replace(co_consts=tuple(changed if const is function else const for const in module.co_consts))


def differs(folder: Path, code: CodeType) -> bool:
    source, bytecode = folder / "m.py", folder / "m.pyc"
    source.write_text(SOURCE)
    bytecode.write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
    return bool(differing_bytecode([["/__pycache__/m.cpython-311.pyc", str(source), str(bytecode)]]))


def test_the_same_code(tmp_path: Path) -> None:
    assert not differs(tmp_path, compile(SOURCE, "/elsewhere.py", "exec", dont_inherit=True))


@pytest.mark.parametrize("name", ["NOP", "SWAP"])
def test_what_releases_do_differently(tmp_path: Path, name: str) -> None:
    resume = bytes((dis.opmap["RESUME"], 0))
    assert not differs(tmp_path, compiled(resume, resume + bytes((dis.opmap[name], 2))))


def test_a_condition_turned_round(tmp_path: Path) -> None:
    jumps = [dis.opmap[f"POP_JUMP_FORWARD_IF_{word}"] for word in ("FALSE", "TRUE")]
    function = compile(SOURCE, "/m.py", "exec", dont_inherit=True).co_consts[0]
    (at,) = (step for step in dis.get_instructions(function) if step.opcode == jumps[0])
    assert at.arg is not None
    assert differs(tmp_path, compiled(bytes((jumps[0], at.arg)), bytes((jumps[1], at.arg))))


def test_another_constant(tmp_path: Path) -> None:
    load = dis.opmap["LOAD_CONST"]
    assert differs(tmp_path, compiled(bytes((load, 1)), bytes((load, 2))))
