"""Bytecode beside its source: what counts as a difference, and what two releases of one Python may do differently."""

from __future__ import annotations

import dis
import importlib.util
import io
import json
import marshal
import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from training_imgtool.verify.inside.bytecode import find_differing_bytecode
from training_imgtool.verify.inside.same_code import same_code

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
_PROGRAMS = ("/usr/bin/python3.11", *map(str, Path.home().glob(".pyenv/versions/3.11.*/bin/python3.11")))
_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_COMPILE = """
import json, marshal, sys, warnings
warnings.simplefilter("ignore")
for path in json.load(sys.stdin):
    with open(path, "rb") as stream:
        code = compile(stream.read(), path, "exec", dont_inherit=True)
    marshal.dump(code, sys.stdout.buffer)
"""


def module() -> CodeType:
    return compile(SOURCE, "/m.py", "exec", dont_inherit=True)


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
    return bool(find_differing_bytecode([["/__pycache__/m.cpython-311.pyc", str(source), str(bytecode)]]))


def test_the_same_code(tmp_path: Path) -> None:
    assert not differs(tmp_path, marshal.dumps(compile(SOURCE, "/elsewhere.py", "exec", dont_inherit=True)))
    assert differs(tmp_path, marshal.dumps(compile(f"\n{SOURCE}", "/m.py", "exec", dont_inherit=True)))
    assert differs(tmp_path, marshal.dumps(module())[:-9])
    assert differs(tmp_path, marshal.dumps(None))


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


def test_every_changed_argument_is_a_difference() -> None:
    """Of each instruction, jumps included: another target is another program."""
    made = module()
    for number, function in functions(made):
        code = function.co_code
        for step in dis.get_instructions(function):
            if step.opname in {"RESUME", "JUMP_BACKWARD_NO_INTERRUPT"} or step.arg is None:
                continue
            for argument in {step.arg ^ 1, (step.arg + 3) & 255}:
                other = code[: step.offset + 1] + bytes((argument,)) + code[step.offset + 2 :]
                assert not equal(made, changed(made, number, co_code=other)), step


def test_every_instruction_left_out_is_a_difference() -> None:
    made = module()
    for number, function in functions(made):
        code = function.co_code
        for step in dis.get_instructions(function):
            # NOP and a jump to the next instruction do nothing; the frame's own instructions are checked elsewhere
            if step.opname in {"NOP", "RESUME", "EXTENDED_ARG"} or step.opname.startswith("JUMP_FORWARD"):
                continue
            other = code[: step.offset] + bytes((dis.opmap["NOP"], 0)) + code[step.offset + 2 :]
            assert not equal(made, changed(made, number, co_code=other)), step


def equal(one: CodeType, other: CodeType) -> bool:
    try:
        return same_code(one, other)
    except Exception:  # noqa: BLE001 - as `differing_bytecode` does: what cannot be followed is a difference
        return False


def straight(*names: str | tuple[str, int], variables: tuple[str, ...] = ("a", "b", "c")) -> CodeType:
    """A function of three arguments with these instructions."""
    steps = [(name, 0) if isinstance(name, str) else name for name in names]
    code = bytes(byte for name, arg in steps for byte in (dis.opmap[name], arg))
    blank = next(functions(compile("def f(a, b, c): pass", "/m.py", "exec", dont_inherit=True)))[1]
    return blank.replace(co_code=code, co_varnames=variables, co_stacksize=9, co_consts=(None, 1, 2))


LOADS = (("LOAD_FAST", 0), ("LOAD_FAST", 1))
SWAP, A, B, C = ("SWAP", 2), ("STORE_FAST", 0), ("STORE_FAST", 1), ("STORE_FAST", 2)
END = (("LOAD_CONST", 0), "RETURN_VALUE")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((*LOADS, SWAP, A, B), (*LOADS, B, A), True),
        ((*LOADS, SWAP, A, B), (*LOADS, A, B), False),
        ((*LOADS, SWAP, "POP_TOP", B), (*LOADS, B, "POP_TOP"), True),
        ((*LOADS, SWAP, "POP_TOP", B), (*LOADS, "POP_TOP", B), False),
        ((*LOADS, SWAP, SWAP, "POP_TOP", "POP_TOP"), (*LOADS, "POP_TOP", "POP_TOP"), True),
        ((*LOADS, SWAP, C, C), (*LOADS, C, C), True),
        ((*LOADS, "POP_TOP", "POP_TOP"), ("NOP", *LOADS, "NOP", "POP_TOP", "POP_TOP"), True),
        ((*LOADS, "POP_TOP", "POP_TOP"), (*LOADS, ("JUMP_FORWARD", 0), "POP_TOP", "POP_TOP"), True),
        ((*LOADS, "POP_TOP", "POP_TOP"), (*LOADS, "POP_TOP"), False),
        ((*LOADS, "POP_TOP", "POP_TOP"), (*LOADS, ("JUMP_FORWARD", 1), "POP_TOP", "POP_TOP"), False),
        ((("LOAD_CONST", 1), "POP_TOP"), (("LOAD_CONST", 2), "POP_TOP"), False),
    ],
)  # fmt: skip
def test_what_releases_do_differently(one: tuple[str, ...], other: tuple[str, ...], *, same: bool) -> None:
    assert equal(straight(*one, *END), straight(*other, *END)) == same


def test_a_condition_turned_round() -> None:
    true, false = (f"POP_JUMP_FORWARD_IF_{word}" for word in ("TRUE", "FALSE"))
    one = straight(("LOAD_FAST", 0), (false, 2), ("LOAD_CONST", 1), "RETURN_VALUE", ("LOAD_CONST", 2), "RETURN_VALUE")
    two = straight(("LOAD_FAST", 0), (true, 2), ("LOAD_CONST", 2), "RETURN_VALUE", ("LOAD_CONST", 1), "RETURN_VALUE")
    bad = straight(("LOAD_FAST", 0), (true, 2), ("LOAD_CONST", 1), "RETURN_VALUE", ("LOAD_CONST", 2), "RETURN_VALUE")
    assert equal(one, two)
    assert not equal(one, bad)


def test_specialised_instructions_are_a_difference() -> None:
    """They are not in `co_code`, and the interpreter runs them as they are."""
    number = dis._all_opmap["LOAD_FAST__LOAD_FAST"]  # type: ignore[attr-defined]
    code = straight(*LOADS, "POP_TOP", "POP_TOP", *END)
    other = code.replace(co_code=bytes((number, *code.co_code[1:])))
    assert code.co_code == other.co_code
    assert not equal(code, other)


def test_loops_and_jumps_that_never_end() -> None:
    endless = straight("NOP", ("JUMP_BACKWARD", 2))
    assert equal(endless, straight(("JUMP_BACKWARD", 1)))
    assert not equal(endless, straight(*END))
    assert not equal(straight("POP_TOP", ("JUMP_BACKWARD", 2)), straight("POP_TOP", ("JUMP_BACKWARD", 2), "NOP"))


def compare_releases(paths: list[str]) -> tuple[int, list[str]]:
    """How many files the other release of this Python compiles to other bytes, and those to something else."""
    command = [another_release(), "-c", _COMPILE]
    done = subprocess.run(command, input=json.dumps(paths).encode(), capture_output=True, check=True)
    theirs, bytes_differ, differ = io.BytesIO(done.stdout), 0, []
    for path in paths:
        data = marshal.load(theirs)
        with warnings.catch_warnings(action="ignore"):
            ours = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        bytes_differ += ours != data
        differ += [] if same_code(ours, data) else [path]
    return bytes_differ, differ


def release_of(program: str) -> str:
    return subprocess.run([program, "-c", _VERSION], capture_output=True, text=True, check=True).stdout.strip()


def another_release() -> str:
    """A Python of this minor version and another release; skips the test without one."""
    for program in filter(os.path.exists, _PROGRAMS):
        if release_of(program) != release_of(sys.executable):
            return program
    pytest.skip("no other release of this Python is here")


@pytest.mark.parametrize("share", [40, pytest.param(1, marks=pytest.mark.long)])
def test_another_release_compiles_to_the_same(share: int) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(str(path) for path in library.rglob("*.py") if not {"lib2to3", "site-packages"} & {*path.parts})
    paths = [path for path in paths if "bad" not in path]
    always = [str(library / "test/test_compile.py")]  # has assignments that releases before 3.11.4 compile wrongly
    bytes_differ, differ = compare_releases([*always, *paths[::share]])
    assert bytes_differ
    assert differ == []
