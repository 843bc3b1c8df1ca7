"""Completion as people get it: installed by `imgtool --install-completion`, then the Tab key in a real shell."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.project import IMGTOOL

pytestmark = pytest.mark.slow
TAB, TO_THE_START, TO_THE_END = "\t", "\x01", "\x05"


@pytest.mark.parametrize(
    ("shell", "tabs"), [("bash", 1), *(pytest.param(*one, marks=pytest.mark.long) for one in (("zsh", 2), ("fish", 1)))]
)
def test_the_tab_key_completes(shell: str, tabs: int, tmp_path: Path) -> None:
    """Zsh only loads the function at the first Tab of a session: docs/howto/install.md says so."""
    if not (program := shutil.which(shell)):
        pytest.skip(f"no {shell} (apt-get install {shell})")
    path = f"{Path(IMGTOOL).parent}:{os.environ['PATH']}"
    env = {"HOME": str(tmp_path), "PATH": path, "SHELL": program, "TERM": "xterm", "LANG": "C.UTF-8"}
    install = [program, "-c", "imgtool --install-completion; true"]  # the second command keeps the shell as its parent
    subprocess.run(install, env=env, cwd=tmp_path, capture_output=True, check=True)
    child, screen = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(program, [program, "-i"], env)
    try:
        _type(screen, "echo > started\n", tmp_path / "started")
        for number, (typed, completed) in enumerate((("imgtool pu", "push"), ("imgtool push --ro", "push --role"))):
            line = tmp_path / f"line{number}"
            _type(
                screen, f"{typed}{TAB * (1 if number else tabs)}{TO_THE_START}echo {TO_THE_END} > {line.name}\n", line
            )
            assert line.read_text().split() == ["imgtool", *completed.split()]
    finally:
        os.close(screen)
        os.waitpid(child, 0)


def _type(screen: int, keys: str, file: Path) -> None:
    """Presses keys, and waits until the shell has written a file."""
    os.write(screen, keys.encode())
    shown, deadline = b"", time.monotonic() + 30
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        if select.select([screen], [], [], 0.1)[0]:
            shown += os.read(screen, 4096)
    assert file.exists(), shown.decode(errors="replace")
