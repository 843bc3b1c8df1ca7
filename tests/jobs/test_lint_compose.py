"""Lint names each fault in a Compose file on its line, and takes what Compose takes."""

from __future__ import annotations

import pytest

from tests.jobs.faults_compose import FAULTS, GOOD, TAKEN
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.model import Severity

_ELSEWHERE = {"circle", "top key"}  # another line is as good: the other half of the contradiction


def errors(text: str) -> list[tuple[int, str]]:
    return [(item.line, str(item)) for item in lint(text, "f") if item.severity is Severity.ERROR]


@pytest.mark.parametrize(("name", "old", "new"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_each_fault_is_an_error_on_its_line(name: str, old: str, new: str) -> None:
    assert old in GOOD
    found = errors(GOOD.replace(old, new, 1))
    assert found
    first = GOOD[: GOOD.index(old)].count("\n") + 1
    assert name in _ELSEWHERE or any(first <= line <= first + new.count("\n") for line, _ in found), found


@pytest.mark.parametrize(("old", "new"), [("name", "name"), *TAKEN])
def test_what_compose_takes_has_no_error(old: str, new: str) -> None:
    assert old in GOOD
    assert errors(GOOD.replace(old, new, 1)) == []
