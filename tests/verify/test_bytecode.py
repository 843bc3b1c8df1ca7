"""Bytecode beside its source: only what this interpreter makes of the source is equal to it."""

from __future__ import annotations

import dis
import importlib.util
import marshal
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from training_imgtool.verify.inside.bytecode import find_differing_bytecode

SOURCE = """
import os
def check(word, other=1, *, flag=2.0):
    "doc"
    if word:
        return True
    size = other
    try:
        first, second, third = other, word, flag
        for letter in word:
            if letter == 'x' or other is None and not flag:
                continue
            print(letter, os.name)
        while other and (word or flag):
            other -= 1
    except (ValueError, KeyError) as error:
        print(error)
    finally:
        del flag
    with open(word) as file:
        return [line for line in file if line]
class Shape:
    size = 3
    def double(self):
        return {'a': self.size * 2, **vars(self)}
"""


def module() -> CodeType:
    return compile(SOURCE, "/site/m.py", "exec", dont_inherit=True)


def functions(code: CodeType) -> Iterator[tuple[int, CodeType]]:
    return ((number, const) for number, const in enumerate(code.co_consts) if isinstance(const, CodeType))


def changed(code: CodeType, number: int, **values: object) -> CodeType:
    """The code with one of its functions changed."""
    consts = list(code.co_consts)
    consts[number] = consts[number].replace(**values)
    return code.replace(co_consts=tuple(consts))


def check(**values: object) -> CodeType:
    """The module with its first function changed."""
    code = module()
    return changed(code, next(functions(code))[0], **values)


def differs(folder: Path, data: bytes) -> bool:
    source, bytecode = folder / "m.py", folder / "m.pyc"
    source.write_text(SOURCE)
    bytecode.write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + data)
    return bool(find_differing_bytecode([["site/__pycache__/m.cpython-311.pyc", str(source), str(bytecode)]]))


def test_the_same_code(tmp_path: Path) -> None:
    assert not differs(tmp_path, marshal.dumps(compile(SOURCE, "/site/m.py", "exec", dont_inherit=True)))
    assert differs(tmp_path, marshal.dumps(compile(f"\n{SOURCE}", "/site/m.py", "exec", dont_inherit=True)))
    assert differs(tmp_path, marshal.dumps(module())[:-9])
    assert differs(tmp_path, marshal.dumps(None))
    assert differs(tmp_path, marshal.dumps(compile(SOURCE, "/elsewhere/m.py", "exec", dont_inherit=True)))


def test_a_fresh_process_may_share_other_objects(tmp_path: Path) -> None:
    """Then the bytes of the file differ, and nothing that runs."""
    made = module()
    assert not differs(tmp_path, marshal.dumps(made, 2))
    assert marshal.dumps(made, 2) != marshal.dumps(made)


FIRST = next(functions(module()))[1]


@pytest.mark.parametrize(
    "values",
    [
        {"co_name": "other"},
        {"co_qualname": "other"},
        {"co_consts": ("other", *FIRST.co_consts[1:])},
        {"co_consts": (*FIRST.co_consts, None)},
        {"co_names": tuple(reversed(FIRST.co_names))},
        {"co_varnames": tuple(reversed(FIRST.co_varnames))},
        {"co_flags": FIRST.co_flags ^ 4},
        {"co_posonlyargcount": 1},
        {"co_stacksize": FIRST.co_stacksize - 1},
        {"co_exceptiontable": b""},
        {"co_exceptiontable": FIRST.co_exceptiontable[: len(FIRST.co_exceptiontable) // 2]},
        {"co_exceptiontable": bytes((FIRST.co_exceptiontable[0] & 127, *FIRST.co_exceptiontable[1:]))},
        {"co_code": FIRST.co_code[:-2]},
    ],
    ids=lambda values: next(iter(values)),  # the same in each process
)
def test_a_part_that_differs(tmp_path: Path, values: dict[str, object]) -> None:
    assert differs(tmp_path, marshal.dumps(check(**values)))


def test_specialised_instructions_are_a_difference(tmp_path: Path) -> None:
    """They are not in `co_code`, and the interpreter runs them as they are."""
    number = dis._all_opmap["LOAD_FAST__LOAD_FAST"]  # type: ignore[attr-defined]
    made = module()
    place, function = next(functions(made))
    at = next(step.offset for step in dis.get_instructions(function) if step.opname == "LOAD_FAST")
    data = marshal.dumps(made)
    code = function.co_code
    assert data.count(code) == 1
    other = code[:at] + bytes((number,)) + code[at + 1 :]
    changed_data = data.replace(code, other)
    assert marshal.loads(changed_data).co_consts[place].co_code == code
    assert differs(tmp_path, changed_data)
