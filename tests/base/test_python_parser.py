"""Parsing in threads, with a garbage collection in between that lets another thread run."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from training_imgtool.base.python_parser import parse_python
from training_imgtool.base.threads import run_all


@pytest.fixture
def restless() -> Iterator[None]:
    def take_time(phase: str, info: dict[str, Any]) -> None:
        del phase, info
        for _ in range(50):
            sum(range(50))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    gc.callbacks.append(take_time)
    yield
    gc.callbacks.remove(take_time)
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_parse_at_once() -> None:
    text = Path(ast.__file__).read_bytes()
    trees = run_all({number: lambda: [parse_python(text) for _ in range(6)][-1] for number in range(4)})
    assert {len(tree.body) for tree in trees.values()} == {len(ast.parse(text).body)}


def test_a_newer_syntax_is_refused() -> None:
    with pytest.raises(SyntaxError):
        parse_python("match x:\n    case 1: pass\n", "x.py", python=(3, 9))
