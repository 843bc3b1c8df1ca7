"""Bytes of containers as lines for a terminal."""

from __future__ import annotations

import pytest

from training_imgtool.cluster.logs import Tail, lines_of, with_name
from training_imgtool.spec.model import Role


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo"], ["one", "two"]),
        ([b"caf\xc3", b"\xa9\n"], ["café"]),
        ([b"bad \xff\n"], ["bad \N{REPLACEMENT CHARACTER}"]),
        ([b" 10%\r 50%\r100%\n"], ["100%"]),
        ([b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n"], ["red \\x1b]0;title\\x07"]),
        ([b"\n\nx"], ["", "", "x"]),
        ([], []),
    ],
)
def test_lines(blocks: list[bytes], lines: list[str]) -> None:
    assert list(lines_of(blocks)) == lines


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    blocks = [b"x" * 40_000] * 10
    shown = list(lines_of(blocks))
    assert len(shown) >= 4
    assert all(len(line) < 1100 for line in shown)


def test_the_last_lines_are_kept() -> None:
    tail = Tail(3)
    for number in range(10):
        tail.add(str(number))
    assert tail.lines() == ("7", "8", "9")


def test_names_in_front() -> None:
    assert with_name("text", "ps-0", Role.PS, width=8, colour=False) == "ps-0     | text"
    shown = {role: with_name("text", "x", role, width=3, colour=True) for role in Role}
    assert all(line.startswith("\x1b[3") and line.endswith("x   |\x1b[0m text") for line in shown.values())
    assert len(set(shown.values())) == len(Role)
