"""What the smoke test makes of a container's answer, which is the image's own text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from training_imgtool.make.engines.docker.probe import Answer
from training_imgtool.model.frameworks import TENSORFLOW
from training_imgtool.verify.findings import Status
from training_imgtool.verify.smoke import judge

GOOD: tuple[dict[str, Any], ...] = (
    {"part": "libraries", "libraries": [{"name": "libcudnn.so.8"}]},
    {"part": "tensorflow", "version": "2.15.1"},
    {"part": "compute", "gpus": ["/GPU:0"], "used": ["/GPU:0"]},
    {"part": "modules", "count": 9, "failed": []},
    {"part": "trainer", "file": "/app/trainer/task.py"},
    {"part": "end", "signal": 0},
)


def _answer(*changed: dict[str, Any]) -> Answer:
    parts = {part["part"]: part for part in (*GOOD, *changed)}
    lines = [json.dumps(part) for part in parts.values() if len(part) > 1]
    return Answer(output="\n".join(["noise", *lines]).encode())


def test_a_good_answer() -> None:
    assert {finding.status for finding in judge(_answer(), "2.15.1", TENSORFLOW, needs_gpu=True)} == {Status.OK}


@pytest.mark.parametrize(
    ("answer", "check", "says"),
    [
        (_answer({"part": "tensorflow", "version": "2.14.0"}), "tensorflow", "TensorFlow 2.14.0"),
        (_answer({"part": "tensorflow", "error": "ImportError", "message": "libx"}), "tensorflow", "ImportError: libx"),
        (_answer({"part": "tensorflow"}), "tensorflow", "nothing"),
        (_answer({"part": "compute", "gpus": [], "used": ["/CPU:0"]}), "compute", "TensorFlow sees no GPU"),
        (_answer({"part": "trainer", "error": "KeyError", "message": "'X'", "where": "a:1"}), "trainer", "'X' at a:1"),
        (_answer({"part": "libraries", "libraries": [{"name": "a", "error": "gone"}]}), "libraries", "a: gone"),
        (
            _answer({"part": "modules", "failed": [{"name": "pyarrow", "error": "E", "message": "x"}]}),
            "modules",
            "pyarrow: E: x",
        ),
        (replace(_answer(), late=True), "smoke test", "it did not end within 300 seconds"),
        (_answer({"part": "end", "signal": 11}), "smoke test", "it was killed by signal 11"),
        (_answer({"part": "end"}), "smoke test", "it broke off"),
        (Answer(fault="no such file"), "smoke test", "no such file"),
        (Answer(errors="a\nbad interpreter"), "smoke test", "bad interpreter"),
    ],
)
def test_what_fails(answer: Answer, check: str, says: str) -> None:
    failing = {
        one.check: one.found
        for one in judge(answer, "2.15.1", TENSORFLOW, needs_gpu=True)
        if one.status is Status.MISMATCH
    }
    assert says in failing[check]


def test_a_trainer_that_reads_its_arguments_as_it_is_imported_is_fine() -> None:
    findings = {
        one.check: one
        for one in judge(_answer({"part": "trainer", "left": "2"}), "2.15.1", TENSORFLOW, needs_gpu=False)
    }
    assert findings["trainer"].status is Status.OK
