"""Signals, with real processes: the first ends in order, the second at once, and nothing takes longer than it may."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import sys, threading, time
from training_imgtool.base.signals import Cancelled, handle_signals
try:
    with handle_signals(grace_seconds={grace}) as cancelled:
        try:
            print("ready", flush=True)
            {body}
        except Exception:
            print("taken for a fault", flush=True)
        finally:
            print("cleaned", cancelled.is_set(), flush=True)
            {cleaning}
except Cancelled as stopped:
    print(stopped, flush=True)
    sys.exit(stopped.exit_code)
print("went on", flush=True)
"""


@contextmanager
def program(
    body: str = "time.sleep(60)", cleaning: str = "pass", grace: float = 5.0, prefix: str = ""
) -> Iterator[subprocess.Popen[str]]:
    script = prefix + PROGRAM.format(body=body, cleaning=cleaning, grace=grace)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code and what was printed, of a program that a signal ends well before its sleep of a minute."""
    printed, _ = process.communicate(timeout=20)
    return process.returncode, printed.splitlines()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_the_first_signal_cleans_up(number: signal.Signals, code: int) -> None:
    with program() as process:
        process.send_signal(number)
        assert ended(process) == (code, ["cleaned True", f"stopped by {number.name}"])


def test_a_wait_for_a_thread_is_interrupted() -> None:
    body = "thread = threading.Thread(target=time.sleep, args=(60,), daemon=True); thread.start(); thread.join()"
    with program(body) as process:
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143


def test_a_signal_in_what_only_reports_its_exceptions() -> None:
    """As one that comes while an import frees its lock: it comes once more, where the run can clean up."""
    prefix = """
import signal

class Thing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

thing = Thing()
"""
    with program("del thing; time.sleep(60)", prefix=prefix) as process:
        assert ended(process) == (130, ["cleaned True", "stopped by SIGINT"])


def test_afterwards_everything_is_as_before() -> None:
    """A signal after the block does what it did before it, and the thread is gone."""
    program = """
import os, signal, sys, threading, time
from training_imgtool.base.signals import SIGNALS, handle_signals
before = [signal.getsignal(signum) for signum in SIGNALS]
with handle_signals():
    assert threading.active_count() == 2
deadline = time.monotonic() + 5
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
assert threading.active_count() == 1
assert [signal.getsignal(signum) for signum in SIGNALS] == before
assert signal.set_wakeup_fd(-1) == -1
assert sys.unraisablehook is sys.__unraisablehook__
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


def test_the_second_signal_ends_at_once() -> None:
    with program(cleaning="time.sleep(60)", grace=60) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout
        assert process.stdout.readline() == "cleaned True\n"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, [])


def test_ending_at_once_names_what_stays_behind() -> None:
    prefix = "from training_imgtool.base.signals import aborting_leaves\n"
    cleaning = "with aborting_leaves('the network n'): time.sleep(60)"
    with program(cleaning=cleaning, grace=60, prefix=prefix) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout
        assert process.stdout.readline() == "cleaned True\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, ["imgtool: ended before it could tidy up the network n"])


THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"


@pytest.mark.parametrize(("prefix", "cleaning"), [("", "time.sleep(60)"), (THREAD, "pass")])
def test_cleaning_up_has_a_limit(prefix: str, cleaning: str) -> None:
    """Python waits at its end for the threads that still run."""
    with program(cleaning=cleaning, grace=1.0, prefix=prefix) as process:
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143
        assert time.monotonic() - began > 0.8


def test_what_nohup_ignores_stays_ignored() -> None:
    prefix = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with program("time.sleep(0.5)", prefix=prefix) as process:
        process.send_signal(signal.SIGHUP)
        assert ended(process) == (0, ["cleaned False", "went on"])
