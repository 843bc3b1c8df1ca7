"""TOML in bounded time."""

from __future__ import annotations

import pytest

from training_imgtool.base.toml import parse_toml


@pytest.mark.parametrize(
    "text", ["a." * 100_000 + "x = 1\n", "[" + '"a" . ' * 60_000 + "x]\n", "x = {" + "a." * 30 + "b = 1}"]
)
def test_a_key_of_many_parts_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="more than 20 parts"):
        parse_toml(text)


def test_deep_values_are_no_recursion_error() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_toml("a = " + "[" * 100_000)
    assert parse_toml("a.b.c = ['1.2.3.4']\n") == {"a": {"b": {"c": ["1.2.3.4"]}}}
