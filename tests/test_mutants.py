"""Which decisions of a program `scripts/mutants` changes, and to what."""

from __future__ import annotations

import pytest

from scripts.mutation.changes import compiles, find_changes


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a == b", {"x = a != b"}),
        ("x = (a)not  in(b)", {"x = (a)in(b)"}),
        ("x = a < 1", {"x = a <= 1", "x = a < (2)"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = True", {"x = False"}),
        ("x = 30", set()),
        ("x = a[0]", {"x = a[(1)]"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("raise a(True)", {"pass"}),
        ("if a:\n    b()", {"if True:\n    b()", "if False:\n    b()"}),
        ("while a:\n    if b:\n        break", {"while a:\n    if False:\n        break"}),
        ("x = [y for y in z if y]", {"x = [y for y in z if True]"}),
        ("f(1, a=2, b=3)", {"f((1), b=3)", "f((1), a=2)"}),
        ("x = (*a, b)", {"x = (*a,)", "x = (b,)"}),
        ("x = {1: 2, **a}", {"x = {(1): (2)}", "x = {**a}"}),
        ("@dataclass(frozen=True)\nclass A:\n    x: Literal[True]", set()),
        ("x = f'{a == b}'", set()),
    ],
)
def test_single_decisions_are_changed(source: str, changed: set[str]) -> None:
    assert {change.apply(source.encode()).decode() for change in find_changes(source.encode())} == changed
    assert all(compiles(text.encode()) for text in changed)
