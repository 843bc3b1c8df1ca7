"""What a person sees of a command: every frame on a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROWS = 40
_WIDE = 1000  # columns of a screen on which nothing wraps
_REDRAW = b"\r\x1b[2K"  # how rich begins to draw its rows over the last ones


@dataclass(frozen=True)
class Recording:
    """A command on a terminal.

    Attributes:
        code: its exit code.
        frames: the terminal's lines before each time that rows were drawn over; the last is what stays.
        unwrapped: the same on a terminal without a right edge.
    """

    code: int
    frames: tuple[tuple[str, ...], ...]
    unwrapped: tuple[tuple[str, ...], ...]


def record(
    command: Sequence[str | Path], *, columns: int, env: Mapping[str, str], cwd: Path, timeout: float = 120
) -> Recording:
    """Runs a command on a terminal of its own."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
            os.chdir(cwd)
            os.execve(str(command[0]), [*map(str, command)], {**env, "TERM": "xterm-256color"})
        finally:
            os._exit(127)
    written, end = b"", time.monotonic() + timeout
    while True:
        if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise TimeoutError(written.decode(errors="replace"))
        try:
            written += os.read(terminal, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Recording(code, _play(written, columns), _play(written, _WIDE))


def _play(written: bytes, columns: int) -> tuple[tuple[str, ...], ...]:
    pyte = pytest.importorskip("pyte")
    screen = pyte.HistoryScreen(columns, ROWS, history=10_000)
    stream = pyte.ByteStream(screen)
    cuts = [0, *(found.start() for found in re.finditer(re.escape(_REDRAW), written)), len(written)]
    frames = []
    for start, stop in pairwise(cuts):
        stream.feed(written[start:stop])
        above = ["".join(line[at].data for at in range(columns)).rstrip() for line in screen.history.top]
        frames.append((*above, *(line.rstrip() for line in screen.display)))
    return tuple(frames)
