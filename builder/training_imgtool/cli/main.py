"""The `imgtool` command: runs a verb and turns every failure into one message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading

from training_imgtool.base.hidden import HidingStream
from training_imgtool.base.signals import Cancelled, end_children, handle_signals
from training_imgtool.cli import app
from training_imgtool.cli.output import ReaderGone, open_missing_streams, report_error, report_stop

BROKEN_PIPE = 141  # as shells count SIGPIPE


def main() -> None:
    """Runs the command line and exits with 0 on success, else with the failure's code (docs/exit-codes.md)."""
    os.umask(0o022)
    gc.set_threshold(100_000)  # with Python's 700 the search for garbage takes a fifth of a build of many files
    open_missing_streams()
    sys.stderr = HidingStream(sys.stderr)
    _exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        with handle_signals() as cancelled:
            return _run_verb(arguments, cancelled)
    except Cancelled as stopped:
        end_children()
        return report_stop(str(stopped), stopped.exit_code, arguments)
    except (RuntimeError, MemoryError) as error:  # no thread, or no memory, to watch for signals
        return report_error(error, arguments)


def _run_verb(arguments: list[str], cancelled: threading.Event) -> int:
    try:
        result = app.run(arguments)
    except (ReaderGone, BrokenPipeError):
        return BROKEN_PIPE
    except SystemExit as end:  # typer exits by itself when nobody reads its help
        return BROKEN_PIPE if isinstance(end.__context__, BrokenPipeError) else int(end.code or 0)
    except Exception as error:  # every failure becomes an exit code here, and nowhere else
        if cancelled.is_set():
            raise
        return report_error(error, arguments)
    return result if isinstance(result, int) else 0


def _exit(code: int) -> None:
    """Ends the process at once, without Python's shutdown.

    Python's shutdown waits for every worker thread, so Ctrl-C would wait for a server that does not answer. It also
    prints a traceback if it cannot flush stdout.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
