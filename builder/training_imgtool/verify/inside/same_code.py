"""Proves that two code objects do the same.

Releases of one version of Python compile a source to different bytecode: they place, join and turn round jumps
differently, copy a short end of a function to each jump that leads there, and save SWAPs by storing in another order
(3.11.2 and 3.11.7 do). Where one assignment names a variable twice, those before 3.11.4 let the wrong value win
(python/cpython#104615); later ones of 3.13 take the iterator of a comprehension's iterator once more (#125038).
So this follows both codes at once from the first instruction: through jumps that always happen, into both branches of
the others, and into the handlers of exceptions. If every two instructions that it reaches together do the same with
the same arguments, the codes do the same: a bisimulation, which proves and assumes nothing.
The text of this module runs inside an image too, so it needs the standard library only and keeps to Python 3.7.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_PARTS = (
    "argcount", "posonlyargcount", "kwonlyargcount", "flags", "names", "varnames", "freevars", "cellvars", "name",
    "qualname", "firstlineno", "stacksize",
)  # fmt: skip
_JUMPS = frozenset(dis.hasjrel + dis.hasjabs)
_ALWAYS = frozenset(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"))
_NOTHING = frozenset(("NOP", "CACHE"))
_STORES = frozenset(("SWAP", "STORE_FAST", "POP_TOP"))
_ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"))
_COMPREHENSION = frozenset(("SWAP", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"))
_PAIRS = {  # instructions of 3.13 that do two things with two variables
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_MOST = 50  # pairs of instructions per instruction; compilers' code needs about one


def same_value(first: Any, second: Any) -> bool:
    """Whether two constants are the same; 1, 1.0 and True are equal in Python, and not here."""
    if type(first) is not type(second):
        return False
    if isinstance(first, types.CodeType):
        return same_code(first, second)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, frozenset):
        return sorted(map(_format_typed, first)) == sorted(map(_format_typed, second))
    return bool(repr(first) == repr(second) if isinstance(first, (float, complex)) else first == second)


def same_code(first: types.CodeType, second: types.CodeType) -> bool:
    """Whether two code objects do the same. Raises for code that no compiler makes, such as a jump out of it."""
    for part in _PARTS:
        if getattr(first, "co_" + part, None) != getattr(second, "co_" + part, None):
            return False
    if not same_value(first.co_consts, second.co_consts):
        return False
    return _read_raw(first) == _read_raw(second) or _have_same_steps(_Steps(first), _Steps(second))


def _format_typed(value: Any) -> str:
    return type(value).__name__ + repr(value)


def _read_raw(code: types.CodeType) -> tuple[bytes, bytes]:
    """The bytes that the interpreter runs: `co_code` hides that instructions are specialised already."""
    return getattr(code, "_co_code_adaptive", code.co_code), getattr(code, "co_exceptiontable", b"")


class _Step:
    """One instruction: what it does, with what, and where the next one is."""

    __slots__ = ("arg", "following", "name", "offset", "target", "value")

    def __init__(self, name: str, arg: Any, value: Any, offset: int, target: int | None) -> None:
        self.name, self.arg, self.value, self.offset, self.target = name, arg, value, offset, target
        self.following = -1


class _Steps:
    """A code object's instructions by offset, the first of their EXTENDED_ARGs'; and the handlers of exceptions."""

    def __init__(self, code: types.CodeType) -> None:
        self.at: dict[int, _Step] = {}
        raw = _read_raw(code)[0]
        begin, steps = -1, [_Step("", None, None, -1, None)]
        for instruction in dis.get_instructions(code):
            if raw[instruction.offset] != instruction.opcode:
                raise ValueError("the code is specialised")
            begin = instruction.offset if begin < 0 else begin
            if instruction.opname == "EXTENDED_ARG":
                continue
            for number, step in enumerate(_make_steps(instruction)):
                self.at[begin + number] = step  # instructions begin at even offsets
                steps[-1].following = begin + number
                steps.append(step)
            begin = -1
        for number, step in enumerate(steps):
            if step.name == "GET_ITER" and _follows_iterator(steps[:number], code):
                step.name = "NOP"
        self._handlers = _parse_handlers(getattr(code, "co_exceptiontable", b""))

    def find_handler(self, offset: int) -> tuple[int, int] | None:
        """Where an exception at an offset goes on, and with how much of the stack."""
        return next(((target, depth) for start, end, target, depth in self._handlers if start <= offset < end), None)

    def settle(self, offset: int) -> int:
        """The first offset from here on that does something; -1 for a loop that does nothing."""
        passed = set()
        while offset not in passed:
            passed.add(offset)
            step = self.at[offset]
            if step.name in _ALWAYS and step.target is not None:
                offset = step.target
            elif step.name in _NOTHING:
                offset = step.following
            else:
                return offset
        return -1

    def follow_stores(self, offset: int) -> tuple[Any, int]:
        """What a row of SWAP, STORE_FAST and POP_TOP does to variables and stack, and the offset behind it."""
        stack: list[int] = []  # the places on the stack at the beginning, top first
        variables: dict[Any, list[int]] = {}  # all that is stored in each, since releases differ in which is last
        count = depth = 0
        while offset >= 0 and self.at[offset].name in _STORES:
            step = self.at[offset]
            depth_used = step.arg if step.name == "SWAP" else 1
            while len(stack) < depth_used:
                stack.append(depth)
                depth += 1
            if step.name == "SWAP":
                stack[0], stack[depth_used - 1] = stack[depth_used - 1], stack[0]
            elif step.name == "STORE_FAST":
                variables[step.arg] = sorted((*variables.get(step.arg, ()), stack.pop(0)))
            else:
                stack.pop(0)
            offset, count = self.settle(step.following), count + 1
            if count > len(self.at):
                raise ValueError("a loop that empties the stack")
        while stack and stack[-1] == depth - 1:
            stack.pop()
            depth -= 1
        return (variables, stack, depth), offset


def _make_steps(instruction: dis.Instruction) -> list[_Step]:
    names = _PAIRS.get(instruction.opname)
    if names and instruction.arg is not None:
        variables = (instruction.arg >> 4, instruction.arg & 15)
        return [_Step(*pair, None, instruction.offset, None) for pair in zip(names, variables)]  # noqa: B905 - 3.10 has strict
    jumps = instruction.opcode in _JUMPS
    name = instruction.opname.replace("FORWARD_IF", "IF").replace("BACKWARD_IF", "IF") if jumps else instruction.opname
    is_constant = instruction.opcode in dis.hasconst
    arg = None if jumps or is_constant else instruction.arg
    return [
        _Step(
            name,
            arg,
            instruction.argval if is_constant else None,
            instruction.offset,
            instruction.argval if jumps else None,
        )
    ]


def _follows_iterator(steps: list[_Step], code: types.CodeType) -> bool:
    """Whether steps leave an iterator on the stack: a comprehension's argument, or one that it takes itself."""
    last = steps[-1]
    if last.name == "LOAD_FAST" and code.co_varnames[last.arg] == ".0":
        return True
    while steps[-1].name in _COMPREHENSION:
        steps.pop()
    return steps[-1].name == "GET_ITER"


def _parse_handlers(table: bytes) -> list[tuple[int, int, int, int]]:
    """Start, end, target and depth of each entry (CPython 3.11, Objects/exception_handling_notes.txt)."""
    rows: list[list[int]] = []
    more = False
    for byte in table:
        if byte & 128:
            rows.append([])
        if more:
            rows[-1][-1] = rows[-1][-1] << 6 | byte & 63
        else:
            rows[-1].append(byte & 63)
        more = bool(byte & 64)
    handlers = [(2 * start, 2 * (start + size), 2 * target, depth) for start, size, target, depth in rows]
    if more or any(entry[1] > following[0] for entry, following in zip(handlers, handlers[1:])):  # noqa: B905, RUF007
        raise ValueError("the exception table is not in order")
    return handlers


def _have_same_steps(left: _Steps, right: _Steps) -> bool:
    reached = set()
    waiting = [(0, 0)]
    while waiting:
        first, second = waiting.pop()
        pair = (left.settle(first), right.settle(second))
        if pair in reached:
            continue
        reached.add(pair)
        following = _compare(left, right, *pair)
        if following is None or len(reached) > _MOST * len(left.at):
            return False
        waiting += following
    return True


def _compare(left: _Steps, right: _Steps, first: int, second: int) -> list[tuple[int, int]] | None:
    """The pairs of offsets that follow two instructions that do the same; None if they do not."""
    if first < 0 or second < 0:
        return [] if first == second else None
    first_step, second_step = left.at[first], right.at[second]
    if first_step.name in _STORES or second_step.name in _STORES:
        (does, first), (likewise, second) = left.follow_stores(first), right.follow_stores(second)
        return [(first, second)] if does == likewise else None
    kind, successors = _list_successors(first_step)
    other_kind, other_successors = _list_successors(second_step)
    if kind != other_kind or first_step.arg != second_step.arg or not same_value(first_step.value, second_step.value):
        return None
    both = list(zip(successors, other_successors))  # noqa: B905 - as many, since they are of one kind
    handlers = left.find_handler(first_step.offset), right.find_handler(second_step.offset)
    if handlers[0] is None or handlers[1] is None:
        return both if handlers[0] == handlers[1] else None
    return [*both, (handlers[0][0], handlers[1][0])] if handlers[0][1] == handlers[1][1] else None


def _list_successors(step: _Step) -> tuple[str, tuple[int, ...]]:
    """What an instruction does, by name, and the offsets that may follow it: of a condition, where it holds first."""
    if step.target is None:
        return step.name, () if step.name in _ENDS else (step.following,)
    for no, yes in (("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"), ("POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_NONE")):
        if step.name == yes:
            return yes, (step.target, step.following)
        if step.name == no:
            return yes, (step.following, step.target)
    return step.name, (step.target, step.following)
