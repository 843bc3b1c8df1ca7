"""A corpus of faults made by rule: each key of good files misspelt or given a wrong value, named at its line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.jobs.fault import GOLDEN
from training_imgtool.jobs.lint import lint
from training_imgtool.jobs.model import Severity

FILES = ("everything.ai-platform", "trio.vertex", "one-cpu.jobset", "one-cpu.tfjob", "one-cpu.pods", "eci-one.eci",
         "one-cpu.trainjob", "limits.compose", "alike.skypilot")  # fmt: skip
KEY = re.compile(r"(?P<before>\s*(?:- )?)(?P<key>[A-Za-z_]\w*):(?P<value> .*)?\Z")
FREE = {"labels", "annotations", "environment", "envs", "nodeSelector", "selector", "services", "volumes", "limits"}
"""Mappings whose keys are the user's own."""


def keys(lines: list[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """The lines with a key of the service's, and what stands there."""
    parents: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if match := KEY.match(line):
            depth = len(match["before"])
            while parents and parents[-1][0] >= depth:
                parents.pop()
            if not parents or parents[-1][1] not in FREE:
                yield number, match
            parents.append((depth, match["key"]))


def found(lines: list[str]) -> set[int]:
    """The lines of errors and warnings about the keys and values of a file."""
    messages = lint("\n".join(lines) + "\n", "f", region="us-central1")
    return {message.line for message in messages if message.severity is not Severity.HINT}


@pytest.mark.parametrize("name", FILES)
def test_each_fault_is_named_at_its_line(name: str) -> None:
    lines = (GOLDEN / f"{name}.yaml").read_text().splitlines()
    quiet = found(lines)
    total = named = 0
    for number, match in keys(lines):
        line, key, value = lines[number], match["key"], match["value"]
        faults = [line.replace(key, f"{key}x", 1)]
        if value and value[1] not in "{[":
            faults.append(line[: -len(value)] + " {a: 1}")
        for fault in faults:
            total += 1
            named += number + 1 in found([*lines[:number], fault, *lines[number + 1 :]]) - quiet
    assert total >= 15
    assert named >= 0.9 * total, (named, total)
