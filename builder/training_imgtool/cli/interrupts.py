"""Ends the command at a Ctrl-C that comes while Python still imports it, with 130 and without a traceback.

The package imports this before anything else, and this imports nothing that Python has not loaded yet. A program that
uses the Python interface keeps its own handlers. From `core.signals.handle_signals` on, the first Ctrl-C ends a run in
order.
"""

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in enumerations, which take long to import
import os
import sys

_COMMANDS = ("imgtool", "training-imgtool", "-m")  # `-m` is what Python says while it looks for the module


def _end(signum: int, frame: object) -> None:
    del frame
    os._exit(128 + signum)


if sys.argv[0].rpartition("/")[2] in _COMMANDS and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end)
