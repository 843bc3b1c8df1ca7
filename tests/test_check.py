"""`scripts/check` accepts a second result only of tests that it lists with a reason."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
SCRIPT: dict[str, Any] = runpy.run_path(str(CHECKOUT / "scripts/check"))
TIMING: dict[str, str] = SCRIPT["TIMING"]
timing_tests: Callable[[list[str]], list[str]] = SCRIPT["timing_tests"]


@pytest.mark.parametrize("listed", TIMING)
def test_each_listed_test_exists_and_has_a_reason(listed: str) -> None:
    file, _, name = listed.partition("::")
    functions = [node.name for node in ast.parse((CHECKOUT / file).read_text()).body if hasattr(node, "name")]
    assert any(function.startswith(name) for function in functions)
    assert TIMING[listed]


def test_the_list_stays_short() -> None:
    assert len(TIMING) <= 10


def test_only_listed_tests_run_again() -> None:
    listed = next(iter(TIMING))
    assert timing_tests([listed]) == [listed]
    assert timing_tests([listed, "tests/test_check.py::test_x"]) == []
