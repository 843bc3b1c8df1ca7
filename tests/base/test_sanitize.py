"""Text of others on a terminal: nothing that a terminal obeys, or a reader is fooled by, gets through."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from training_imgtool.base.sanitize import sanitize_line, sanitize_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, as it is", "plain text, as it is"),
        ("Grüße 世界 ✓", "Grüße 世界 ✓"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b]52;c;Y2FuYXJ5\x1b\\", r"\x1b]52;c;Y2FuYXJ5\x1b" + "\\"),
        ("\x9b31mC1", r"\x9b31mC1"),
        ("10%\r50%\r100%\n", "100%"),
        ("a\tb", "a b"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("a\u2028b\u2066c\u200bd\ufeffe", r"a\u2028b\u2066c\u200bd\ufeffe"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("half\ud800", r"half\ud800"),
        ("nul\0bell\a", r"nul\x00bell\x07"),
        ("two\nlines", r"two\x0alines"),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    assert sanitize_line(text) == shown


def test_no_code_point_gets_through_that_is_no_visible_character() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029":
            assert char not in sanitize_line(f"a{char}b")


def test_a_long_line_is_cut_and_says_how_long_it_was() -> None:
    shown = sanitize_line("x" * 1_000_000)
    assert shown == "x" * 1000 + "… (1000000 characters)"


def test_a_message_keeps_its_lines() -> None:
    assert sanitize_lines("one\n\x1b[1mtwo\x1b[0m\nthree\u202e") == "one\ntwo\nthree\\u202e"
