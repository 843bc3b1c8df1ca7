"""Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends at once.

Python's own SIGTERM and SIGHUP run no `finally`, and its SIGINT raises nothing in threads. Here the first signal
raises `Cancelled` in the main thread, so that every `with` on its stack cleans up; a process that has not ended
within the grace time is ended.

Python runs a handler when its main thread next runs Python code. A signal that comes in the moment before that thread
begins to wait for a lock does not end the wait, and is forgotten until it is over; so a thread that the system tells of
each signal (`signal.set_wakeup_fd`) disturbs the main thread until it has taken it.
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
_DISTURBING = signal.SIGURG  # by default nothing comes of it
_DISTURB_SECONDS = 0.05


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
def handle_signals(grace_seconds: float = GRACE_SECONDS) -> Iterator[threading.Event]:
    """Yields an event that the first signal sets; raises Cancelled in the main thread, which must be the caller.

    A second signal, or `grace_seconds` after the first, ends the process at once with the same exit code; the
    latter holds after the block too, since threads may keep a process from ending. Signals that were ignored
    when the process began (`nohup`, a shell's background job) stay ignored.
    """
    cancelled = threading.Event()
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    arguments = (told, cancelled, grace_seconds)
    threading.Thread(target=_see_to_it, args=arguments, name="imgtool-deadline", daemon=True).start()

    def handle(signum: int, frame: FrameType | None) -> None:
        del frame
        if cancelled.is_set():
            os._exit(128 + signum)
        cancelled.set()
        raise Cancelled(signum)

    before = {signum: signal.getsignal(signum) for signum in (*SIGNALS, _DISTURBING)}
    taken = [signum for signum in SIGNALS if before[signum] is not signal.SIG_IGN]
    told_before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(_DISTURBING, lambda *_: None)
    for signum in taken:
        signal.signal(signum, handle)
    try:
        yield cancelled
    finally:
        if not cancelled.is_set():
            for signum in (*taken, _DISTURBING):
                signal.signal(signum, before[signum])
            signal.set_wakeup_fd(told_before)
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


def _see_to_it(told: int, cancelled: threading.Event, grace_seconds: float) -> None:
    """Has the main thread take a signal whose number came through the pipe, and ends the process after the grace time.

    The close of the pipe's other end ends this. A pipe and not a lock: a handler may run while the main thread holds
    any lock.
    """
    while signum := os.read(told, 1):
        if signum[0] in SIGNALS:
            break
    if not signum:
        os.close(told)
        return
    deadline = time.monotonic() + grace_seconds
    main = threading.main_thread().ident
    while not cancelled.is_set() and time.monotonic() < deadline:
        time.sleep(_DISTURB_SECONDS)
        if not cancelled.is_set() and main is not None:
            signal.pthread_kill(main, _DISTURBING)
    time.sleep(max(0.0, deadline - time.monotonic()))
    _signal_children(signal.SIGKILL)
    os._exit(128 + signum[0])
