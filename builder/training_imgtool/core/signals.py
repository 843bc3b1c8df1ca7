"""Ctrl-C, SIGTERM and SIGHUP: the first signal ends the run in order, the second ends the process at once.

By default SIGTERM and SIGHUP run no `finally` in Python. Here the first signal raises `Cancelled` in the main thread,
so every `with` block on its stack cleans up; a process that is still there after the grace time exits.

Python runs a signal handler when its main thread next executes Python code. A signal that arrives just before that
thread starts to wait for a lock does not interrupt the wait. A second thread, which reads signals from a pipe
(`signal.set_wakeup_fd`), therefore interrupts the main thread until the handler ran. It does so again if the exception
was lost: what a finalizer or the callback of a weak reference raises, Python only reports. Imports run such callbacks.
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

from training_imgtool.core.system import (
    INTERRUPT,
    KILL,
    SIGNALS,
    interrupt_thread,
    list_children,
    never_wait,
    signal_program,
)

GRACE_SECONDS = 5.0
_INTERRUPT_SECONDS = 0.05


class Cancelled(BaseException):
    """The user or the system ended this run. It is no Exception, so no handler of errors catches it.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as in shells: 130, 143, 129."""
        return 128 + self.signum


_left: list[str] = []  # what the process leaves when it ends at once


@contextmanager
def aborting_leaves(what: str) -> Iterator[None]:
    """Names what stays behind when a second signal ends the process within the block."""
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
    """Raises Cancelled in the main thread at the first signal, again if that was lost, and ends at the second one.

    Attributes:
        cancelled: set by the first signal.
        raised: set while Cancelled is on its way through the main thread, as far as is known.
        signum: the first signal; 0 before it.
    """

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.raised = threading.Event()
        self.signum = 0
        self.report_before = sys.unraisablehook

    def handle(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.cancelled.is_set():
            _abort(signum)
        self.cancelled.set()
        self.signum = signum
        self.raised.set()
        raise Cancelled(signum)

    def raise_lost(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if self.signum and not self.raised.is_set():
            self.raised.set()
            raise Cancelled(self.signum)

    def report(self, lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, Cancelled):
            self.raised.clear()
        else:
            self.report_before(lost)


@contextmanager
def handle_signals(grace_seconds: float = GRACE_SECONDS) -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; raises Cancelled in the main thread, which must be the caller.

    An exception that the signal brought about, since it came in the middle of an import, counts as Cancelled too.

    The process exits with the same code at a second signal, and `grace_seconds` after the first one, even when the
    block is over by then, since threads may keep a process alive. Signals that the process ignores from its start
    (`nohup`, a shell's background job) stay ignored.
    """
    stop = _Stop()
    reader, writer = os.pipe()
    never_wait(writer)
    arguments = (reader, stop.raised, grace_seconds)
    threading.Thread(target=_enforce_end, args=arguments, name="imgtool-deadline", daemon=True).start()
    before = {signum: signal.getsignal(signum) for signum in (*SIGNALS, INTERRUPT)}
    handled = [signum for signum in SIGNALS if before[signum] is not signal.SIG_IGN]
    writer_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    sys.unraisablehook = stop.report
    signal.signal(INTERRUPT, stop.raise_lost)
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
            for signum in (*handled, INTERRUPT):
                signal.signal(signum, before[signum])
            signal.set_wakeup_fd(writer_before)
            sys.unraisablehook = stop.report_before
            os.close(writer)


def end_children(seconds: float = 1.0) -> None:
    """Ends the programs that this process runs (uv, a credential helper), and waits for the threads that use them.

    Such a thread removes its temporary files when its program ends.
    """
    _signal_children(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            with suppress(RuntimeError):  # the signal came before its start was over
                thread.join(max(0.0, deadline - time.monotonic()))
    _signal_children(KILL)


def _signal_children(signum: int) -> None:
    for pid in list_children():
        with suppress(OSError):
            signal_program(pid, signum)


def _enforce_end(reader: int, raised: threading.Event, grace_seconds: float) -> None:
    """Interrupts the main thread until it raised for the signal from the pipe; ends the process after the grace time.

    Returns when the other end of the pipe closes. It is a pipe and no lock, since a handler may run while the main
    thread holds any lock.
    """
    while signum := os.read(reader, 1):
        if signum[0] in SIGNALS:
            break
    if not signum:
        os.close(reader)
        return
    deadline = time.monotonic() + grace_seconds
    main = threading.main_thread().ident
    while time.monotonic() < deadline:
        time.sleep(_INTERRUPT_SECONDS)
        if not raised.is_set() and main is not None:
            interrupt_thread(main)
    _signal_children(KILL)
    _abort(signum[0])
