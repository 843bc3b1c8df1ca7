"""The `imgtool` command: runs a verb, and turns every failure into one clear message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from training_imgtool.cli.output import Broken, open_missing, report, report_stop

BROKEN_PIPE = 141  # as shells count SIGPIPE


def main() -> None:
    """Runs the command line and exits: 0 on evidence, else the code of the failure (docs/exit-codes.md)."""
    gc.set_threshold(100_000)  # most of a short run's objects are its code: looking through them again took 5 ms
    os.umask(0o022)
    open_missing()
    _leave(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    from training_imgtool.core.signals import Cancelled, end_children, handle_signals

    try:
        with handle_signals():
            return _done(arguments)
    except Cancelled as stopped:
        end_children()
        return report_stop(str(stopped), stopped.exit_code, arguments)


def _done(arguments: list[str]) -> int:
    try:
        from training_imgtool.cli import app

        result = app.run(arguments)
    except (Broken, BrokenPipeError):
        return BROKEN_PIPE
    except SystemExit as end:  # the command-line library's own answer when the reader of its help has gone
        return BROKEN_PIPE if isinstance(end.__context__, BrokenPipeError) else int(end.code or 0)
    except Exception as error:  # noqa: BLE001 - the one place where everything becomes an exit code
        return report(error, arguments)
    return result if isinstance(result, int) else 0


def _leave(code: int) -> None:
    """Ends the process without Python's own last flush, which would print a traceback on a broken pipe."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
