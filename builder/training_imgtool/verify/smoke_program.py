"""A program that runs inside an image and prints one JSON object per line, for each thing that it tried there.

`smoke.check_start` passes the program's text to `python -c`, followed by a framework's part and a call of `run`. So the
program may only use the standard library, and must run on Python 3.7 or newer. Importing a framework or a trainer may
crash, so a child process does the work and the parent process prints how the child ended. The image can print anything,
so `smoke` sanitizes the output and uses it only for the smoke test.
"""
# Every exception of the image's own code is an answer:
# ruff: noqa: BLE001

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import pathlib
import runpy
import sys
import sysconfig
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Fields = dict[str, Any]
    Report = Callable[[Fields], None]

_INSTALLERS = {"pip", "setuptools", "pkg_resources", "wheel", "distutils"}


def run(request: Fields) -> None:
    """Opens libraries, imports the framework, multiplies matrices, then imports the trainer without running it."""

    def work(report: Report) -> None:
        child = os.fork()  # the framework must find its libraries without help
        if child == 0:
            _report_libraries(request["libraries"], report)
            os._exit(0)
        os.waitpid(child, 0)
        child = os.fork()  # a module that crashes ends only this process
        if child == 0:
            _report_modules(report)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            report({"part": "modules", "failed": [{"name": "one", "error": f"signal {os.WTERMSIG(status)}"}]})
        _report_framework(request["framework"], report)
        os.environ.update(request["env"])
        _report_trainer(request["module"], report)

    _run_apart(work)


def _report_libraries(names: list[str], report: Report) -> None:
    libraries = []
    for name in names:
        fields: Fields = {"name": name}
        try:  # by name alone, as frameworks and cuDNN open libraries
            ctypes.CDLL(name)
        except OSError as error:
            fields["error"] = str(error)[:300]
        libraries.append(fields)
    report({"part": "libraries", "libraries": libraries})


def _report_modules(report: Report) -> None:
    """Imports each module and package at the top of site-packages, except private ones and those of installers."""
    entries = [*pathlib.Path(sysconfig.get_paths()["purelib"]).iterdir()]
    there = [entry.name for entry in entries if (entry / "__init__.py").is_file()]
    there += [entry.stem for entry in entries if entry.suffix == ".py"]
    names = sorted(name for name in there if name.isidentifier() and name[0] != "_" and name not in _INSTALLERS)
    failed = []
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:
            failed.append(dict(_describe_failure(error), name=name))
    report({"part": "modules", "count": len(names), "failed": failed})


def _report_framework(name: str, report: Report) -> None:
    try:
        framework = importlib.import_module(name)
    except BaseException as error:
        report(dict(_describe_failure(error), part=name))
        return
    report({"part": name, "version": str(getattr(framework, "__version__", "no version"))})
    try:
        report(dict(globals()["compute"](framework), part="compute"))
    except BaseException as error:
        report(dict(_describe_failure(error), part="compute"))


def _report_trainer(module: str, report: Report) -> None:
    script = module.endswith(".py")
    sys.path.insert(0, module.rpartition("/")[0] if script else "")  # where `python FILE` and `python -m` look first
    try:
        spec = None if script else importlib.util.find_spec(module)
        if spec is None and not script:
            report({"part": "trainer", "error": "ModuleNotFoundError", "message": f"No module named {module!r}"})
            return
        name = module + ".__main__" if spec and spec.submodule_search_locations is not None else module
        file = runpy.run_path(name, run_name="script")["__file__"] if script else importlib.import_module(name).__file__
    except SystemExit as left:
        report({"part": "trainer", "left": str(left.code)})
        return
    except BaseException as error:
        report(dict(_describe_failure(error), part="trainer"))
        return
    report({"part": "trainer", "file": file})


def _describe_failure(error: BaseException) -> Fields:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    words = (str(error).strip().splitlines() or [""])[0]
    return {"error": type(error).__name__, "message": words[:300], "where": where}


def _run_apart(work: Callable[[Report], object]) -> None:
    """Calls `work` in a child process, whose output goes to stderr; reports how the child ended."""
    channel = os.dup(1)
    os.dup2(2, 1)

    def report(fields: Fields) -> None:
        data = (json.dumps(fields) + "\n").encode()
        while data:
            data = data[os.write(channel, data) :]

    child = os.fork()
    if child == 0:
        try:
            work(report)
        except BaseException as error:
            report(dict(_describe_failure(error), part="broken"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    report({"part": "end", "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})
