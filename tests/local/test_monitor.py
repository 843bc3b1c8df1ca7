"""Bytes of containers as lines for a terminal."""

from __future__ import annotations

import pytest

from training_imgtool.local.monitor import join_ends, lines_of


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\nt", b"wo"], ["one", "two"]),
        ([b"caf\xc3", b"\xa9\n"], ["café"]),
        ([b"bad \xff\n"], ["bad \N{REPLACEMENT CHARACTER}"]),
        ([b" 10%\r 50%\r100%\n"], ["100%"]),
        ([b"\x1b[31mred\x1b[0m\n"], ["red"]),
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


def test_the_end_of_stderr_is_shown_even_if_it_was_logged_before_much_output() -> None:
    output = tuple(f"line {number}" for number in range(20))
    assert join_ends(output, ()) == output
    assert join_ends(output, ("old", "line 7", "")) == output, "in its place among the others"
    assert join_ends(output, ("Traceback", "  ValueError")) == (*output[2:], "Traceback", "  ValueError")
    errors = tuple(f"error {number}" for number in range(20))
    assert join_ends(output, errors) == (*output[15:], *errors[5:])
    assert join_ends((), errors) == errors[5:]
