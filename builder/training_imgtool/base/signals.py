"""Handles Ctrl-C, SIGTERM and SIGHUP: the first signal lets the run clean up, the second ends the process at once.

By default, SIGTERM and SIGHUP end Python without running `finally` blocks. With this module, the first signal raises
`Cancelled` in the main thread, so that every `with` block there cleans up. If cleaning up takes longer than the grace
time, the process exits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from training_imgtool.base.system import list_children
from training_imgtool.base.threads import start_thread

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 5.0
_REPEAT_SECONDS = 0.01  # wait until the finalizer or the import has ended


class Cancelled(BaseException):
    """The user or the system ended this run. `except Exception` does not catch this class.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """The exit code: 128 plus the signal's number, as in shells (130, 143, 129)."""
        return 128 + self.signum


_left: list[str] = []  # what the process leaves behind when it ends at once


@contextmanager
def aborting_leaves(what: str) -> Iterator[None]:
    """Adds `what` to the message about things left behind, for a second signal that comes within the block."""
    _left.append(what)
    try:
        yield
    finally:
        _left.remove(what)


def _abort(signum: int) -> NoReturn:
    lines = "".join(f"imgtool: ended before it could tidy up {what}\n" for what in _left)
    with suppress(OSError):
        os.write(2, lines.encode())
    os._exit(128 + signum)


class _Stop:
    """Raises Cancelled in the main thread at the first signal, and ends the process at the second one.

    Attributes:
        cancelled: set by the first signal.
        signum: the first signal; 0 before it.
    """

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.signum = 0
        self.report_before = sys.unraisablehook

    def handle(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.cancelled.is_set():
            _abort(signum)
        self.cancelled.set()
        self.signum = signum
        raise Cancelled(signum)

    def report(self, lost: sys.UnraisableHookArgs) -> None:
        """Sends the signal again if Python dropped Cancelled: in a finalizer, or when an import frees its lock."""
        if not isinstance(lost.exc_value, Cancelled):
            self.report_before(lost)
            return
        signum = lost.exc_value.signum
        self.cancelled.clear()
        try:
            start_thread("imgtool-signal", lambda: _repeat(signum))
        except RuntimeError:
            end_children()
            _abort(signum)


def _repeat(signum: int) -> None:
    time.sleep(_REPEAT_SECONDS)
    os.kill(os.getpid(), signum)


@contextmanager
def handle_signals(grace_seconds: float = GRACE_SECONDS) -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; raises Cancelled in the main thread, which must call this function.

    A signal in the middle of an import may cause another exception, which this function replaces by Cancelled.

    The process exits with the same code at a second signal, or `grace_seconds` after the first. The process exits even
    after the block has ended, because threads may keep it alive. Signals that the process ignores from its start
    (`nohup`, a shell's background job) stay ignored.
    """
    stop = _Stop()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    start_thread("imgtool-deadline", lambda: _enforce_end(reader, grace_seconds))
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    handled = [signum for signum in SIGNALS if before[signum] is not signal.SIG_IGN]
    writer_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    sys.unraisablehook = stop.report
    for signum in handled:
        signal.signal(signum, stop.handle)
    try:
        yield stop.cancelled
    except Exception as error:
        if stop.signum:
            raise Cancelled(stop.signum) from error
        raise
    finally:
        if not stop.cancelled.is_set():
            for signum in handled:
                signal.signal(signum, before[signum])
            signal.set_wakeup_fd(writer_before)
            sys.unraisablehook = stop.report_before
            os.close(writer)


def end_children(seconds: float = 1.0) -> None:
    """Ends the programs that this process runs (uv, a credential helper), and waits for the threads that use them.

    After the program ends, the thread that used the program removes its temporary files.
    """
    _signal_children(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            with suppress(RuntimeError):  # the signal came before the program had started
                thread.join(max(0.0, deadline - time.monotonic()))
    _signal_children(signal.SIGKILL)


def _signal_children(signum: int) -> None:
    """Sends a signal to each child, and to the child's process group if the child leads one."""
    for pid in list_children():
        with suppress(OSError):
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signum)


def _enforce_end(reader: int, grace_seconds: float) -> None:
    """Ends the process when the grace time after a signal is over; the handler reports the signal through a pipe.

    This function ends when the other end of the pipe closes. A lock cannot replace the pipe, because a handler may run
    while the main thread holds that lock.
    """
    while signum := os.read(reader, 1):
        if signum[0] in SIGNALS:
            time.sleep(grace_seconds)
            _signal_children(signal.SIGKILL)
            _abort(signum[0])
    os.close(reader)
