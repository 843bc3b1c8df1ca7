"""`imgtool` without its start: forked from a process that has loaded it, so that a loop over every request is quick."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_ONE_AT_A_TIME = threading.Lock()  # starting one reads the exit codes of all others, and who reads one second finds 255
_LOADED = [
    *(
        "training_imgtool.cli.main",
        "training_imgtool.build.build",
        "training_imgtool.build.sinks",
        "training_imgtool.registry.upload",
        "training_imgtool.wheels.store",
    ),
    *(
        "training_imgtool.registry.http.transport",
        "training_imgtool.dockerfile.render",
        "training_imgtool.commands.job_files.config",
        "urllib3",
        "yaml",
        "jinja2",
    ),
    __name__,
]


def start(arguments: list[str], env: Mapping[str, str], cwd: Path, output: Path) -> ForkServerProcess:
    """Begins `imgtool ARGUMENTS…`; both of its streams go to files beside `output`. It may be killed by its pid."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    process = context.Process(target=_run, args=(arguments, dict(env), str(cwd), str(output)), daemon=True)
    with _ONE_AT_A_TIME:
        process.start()
    return process


def ended(process: ForkServerProcess, seconds: float) -> int | None:
    """Waits for a process; its exit code, or None when it did not end in that time."""
    connection.wait([process.sentinel], seconds)
    with _ONE_AT_A_TIME:
        process.join(0)
        return process.exitcode


def _run(arguments: list[str], env: dict[str, str], cwd: str, output: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.setpgid(0, 0)
    for number, suffix in ((1, ".out"), (2, ".err")):
        descriptor = os.open(output + suffix, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.dup2(descriptor, number)
    sys.argv = ["imgtool", *arguments]
    from training_imgtool.cli.main import main

    main()
