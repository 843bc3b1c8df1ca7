"""Bytes of containers as lines for a terminal."""

from __future__ import annotations

import pytest

from training_imgtool.cluster.monitor import lines_of


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
