"""Lint names each fault in a Pod, a Job and a Service, and takes what the API server takes."""

from __future__ import annotations

import pytest

from tests.jobs.faults_pods import FAULTS, JOB, POD, SERVICE, TAKEN
from training_imgtool.jobs.model import Severity
from training_imgtool.jobs.rules.lint import lint


def errors(text: str) -> list[tuple[int, str]]:
    return [(item.line, str(item)) for item in lint(text, "f") if item.severity is Severity.ERROR]


@pytest.mark.parametrize(("text", "old", "new"), FAULTS)
def test_each_fault_is_an_error_on_its_line(text: str, old: str, new: str) -> None:
    """What is missing is named at the object that lacks it, which begins above."""
    assert old in text
    found = errors(text.replace(old, new, 1))
    first = text[: text.index(old)].count("\n") + 1
    assert any((first if new else 2) <= line <= first + new.count("\n") for line, _ in found), found


@pytest.mark.parametrize(("text", "old", "new"), [*((text, "name", "name") for text in (POD, JOB, SERVICE)), *TAKEN])
def test_what_the_server_takes_has_no_error(text: str, old: str, new: str) -> None:
    assert old in text
    assert errors(text.replace(old, new, 1)) == []


@pytest.mark.parametrize(("item", "twice"), [("{name: A, value: x}", True), ("{value: x}", False)])
def test_only_names_can_appear_twice(item: str, twice: bool) -> None:
    said = [text for _, text in errors(JOB.replace('{name: A, value: "1"}', f"{item}, {item}"))]
    assert said
    assert any("appears twice" in text for text in said) is twice


def test_a_mount_without_a_name_lacks_the_name_and_nothing_else() -> None:
    said = [text for _, text in errors(JOB.replace("{name: data, mountPath: /data}", "{mountPath: /data}"))]
    assert ["is missing" in text for text in said] == [True]
