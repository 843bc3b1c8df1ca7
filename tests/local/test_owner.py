"""Whose containers they are, and when that process is gone for sure."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from training_imgtool.local.owner import Owner, is_gone, started, this_process

HERE = Owner(host="box pid:[1]", boot="b1", pid=100, started="555")


@pytest.mark.parametrize(
    ("labels", "now", "gone"),
    [
        (HERE.labels("r"), "555", False),  # it lives
        (HERE.labels("r"), None, True),  # no such process
        (HERE.labels("r"), "999", True),  # another process with its number
        (HERE.labels("r"), "", False),  # it lives and does not say since when
        (replace(HERE, boot="b0").labels("r"), "555", True),  # the machine was started again
        (replace(HERE, host="other pid:[1]").labels("r"), None, False),  # another machine shares the engine
        (replace(HERE, host="box pid:[2]").labels("r"), None, False),  # another container on this machine
        (replace(HERE, host="other", boot="b0").labels("r"), None, False),
        ({"dev.imgtool.run": "r"}, None, False),  # not ours to judge
        ({**HERE.labels("r"), "dev.imgtool.pid": "x"}, None, False),
    ],
)
def test_what_is_gone(labels: dict[str, str], now: str | None, gone: bool) -> None:
    assert is_gone(labels, HERE, lambda pid: now if pid == 100 else "wrong number") is gone


def test_this_process_lives_and_an_ended_one_does_not() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert here.started
    assert not is_gone(here.labels("r"), here)
    with subprocess.Popen(["sleep", "60"]) as process:
        labels = replace(here, pid=process.pid, started=started(process.pid) or "").labels("r")
        assert not is_gone(labels, here)
        process.kill()
    assert is_gone(labels, here)


def test_a_process_of_somebody_else_lives() -> None:
    assert started(1) is not None
