"""Runs a program as `python` does.

This file, a part of `warm_program`, imports only the standard library, and runs on Python 3.7.
"""

from __future__ import annotations

import importlib.machinery
import os
import runpy
import signal
import sys
import types

from training_imgtool.local.inside.workers import use_keepers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ReplacedError(BaseException):
    """A launcher executes its program, in place of itself."""


def run(order: dict[str, Any], arguments: list[str]) -> None:
    """Runs the program as `python` does; an exception ends this process as it would end Python.

    If the program is a launcher, see `use_keepers`; one that executes Python goes on as that Python in this process.
    """
    then, path = order["then"], list(sys.path)
    if order["kind"] == "code":
        use_keepers(order, arguments)
    if then:
        os.execvp = _replace(os.execvp, then["words"])
    try:
        _run(order["kind"], order["name"], arguments)
    except ReplacedError:
        sys.path[:] = path
    else:
        return
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = then["argv"]
    run({**order, **then}, then["rest"])


def _replace(execute: Any, words: list[str]) -> Any:
    def execvp(file: str, args: list[str]) -> None:
        if args != words:
            execute(file, args)
        os.execvp = execute
        raise ReplacedError

    return execvp


def _run(kind: str, name: str, arguments: list[str]) -> None:
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        folder = os.path.dirname(os.path.realpath(name)) if kind == "script" else os.getcwd()
        sys.path.insert(0, "" if kind == "code" else folder)
    sys.argv[:] = [{"module": "-m", "script": name, "code": "-c"}[kind], *arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    main.__loader__ = importlib.machinery.BuiltinImporter
    sys.modules["__main__"] = main
    code = None
    try:
        if kind == "module":
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001
        elif kind == "script":
            _run_script(name, main)
        else:
            exec(compile(name, "<string>", "exec"), main.__dict__)  # noqa: S102
    except (SystemExit, ReplacedError):
        raise
    except BaseException as error:
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is globals():
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    if code is not None:
        sys.exit(code)


def _run_script(path: str, main: types.ModuleType) -> None:
    shown = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    main.__dict__.update(__file__=shown, __cached__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", shown)
    with open(path, "rb") as stream:
        text = stream.read()
    exec(compile(text, shown, "exec"), main.__dict__)  # noqa: S102
