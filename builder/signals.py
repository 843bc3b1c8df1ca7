"""Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends at once.

Python's own SIGTERM and SIGHUP run no `finally`, and its SIGINT raises nothing in threads. Here the first signal
raises `Cancelled` in the main thread, so that every `with` on its stack cleans up; a process that has not ended
within the grace time is ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 5.0


class Cancelled(BaseException):
    """The user or the system asked this process to end. Not an Exception: nothing on the way may take it for a fault.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells count: 130, 143, 129."""
        return 128 + self.signum


@contextmanager
def handling(grace_seconds: float = GRACE_SECONDS) -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; raises Cancelled in the main thread, which must be the caller.

    A second signal, or `grace_seconds` after the first, ends the process at once with the same exit code; the
    latter holds after the block too, since threads may keep a process from ending. Signals that were ignored
    when the process began (`nohup`, a shell's background job) stay ignored.
    """
    cancelled = threading.Event()
    told, tell = os.pipe()
    threading.Thread(target=_end_after, args=(told, grace_seconds), name="imgtool-deadline", daemon=True).start()

    def handle(signum: int, frame: FrameType | None) -> None:
        del frame
        if cancelled.is_set():
            os._exit(128 + signum)
        os.write(tell, bytes([signum]))
        cancelled.set()
        raise Cancelled(signum)

    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    taken = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]
    for signum in taken:
        signal.signal(signum, handle)
    try:
        yield cancelled
    finally:
        if not cancelled.is_set():
            for signum in taken:
                signal.signal(signum, before[signum])
            os.close(tell)


def end_children(seconds: float = 1.0) -> None:
    """Ends the programs that this process still runs (uv, a credential helper), and waits for the threads they serve.

    A thread that waits for a program goes on when the program ends, and takes its temporary files away.
    """
    _signal_children(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    _signal_children(signal.SIGKILL)


def _signal_children(signum: int) -> None:
    for pid in _children():
        with suppress(OSError):
            if os.getpgid(pid) == pid:  # it leads a group: then all that it started goes too
                os.killpg(pid, signum)
            else:
                os.kill(pid, signum)


def _children() -> list[int]:
    """The processes that this one started and that still run, as Linux lists them; none elsewhere."""
    found: list[int] = []
    for state in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            _, _, fields = state.read_text().rpartition(")")  # proc(5): a name in parentheses, the state, the parent
            if int(fields.split()[1]) == os.getpid():
                found.append(int(state.parent.name))
    return found


def _end_after(told: int, grace_seconds: float) -> None:
    """Ends the process `grace_seconds` after a signal's number came through the pipe; the other end's close ends this.

    A pipe and not a lock: a handler may run while the main thread holds any lock.
    """
    signum = os.read(told, 1)
    os.close(told)
    if signum:
        time.sleep(grace_seconds)
        _signal_children(signal.SIGKILL)
        os._exit(128 + signum[0])
