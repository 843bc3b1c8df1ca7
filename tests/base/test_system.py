"""What imgtool reads of the system's processes."""

from __future__ import annotations

import os
import subprocess

from training_imgtool.base import system


def test_children_and_their_start() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in system.list_children()
        assert os.getpid() not in system.list_children()
        start = system.start_of(child.pid)
        assert start.isdigit()
        assert start == system.start_of(child.pid)
        child.kill()
    assert system.start_of(child.pid) == ""
