"""`imgtool` without its start: forked from a process that has loaded it, so that running it often is quick.

Starting Python and importing are most of the CPU time of a command that refuses its spec. What is forked has a process,
an environment, a folder and streams of its own, and ends as the command ends. Variables that Python or a library
reads while it starts come too late: a test of those starts the command itself.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_ONE_AT_A_TIME = threading.Lock()  # starting one reads the exit codes of all others, and who reads one second finds 255
_GROUPS = ("base", "cli", "jobs", "make", "model", "oci", "resolve", "verify")
_LATE = (
    "PATH",
    "HOME",
    "TMPDIR",
    "XDG_",
    "IMGTOOL_",
    "DOCKER_",
    "UV_",
    "PIP_",
    "COSIGN_",
    "SIGSTORE_",
    "NO_GCE_CHECK",
    "GOOGLE_",
    "SOURCE_DATE_EPOCH",
    "TOKEN",
    "FAULTS_MARK",
)


def reads_late(env: Mapping[str, str]) -> bool:
    """Whether nothing reads these variables before `imgtool` needs them, unless they are those of this process."""
    return all(name.startswith(_LATE) or os.environ.get(name) == value for name, value in env.items())


@cache
def _loaded() -> list[str]:
    """The modules to load before forking: what verbs import late; of other packages only what they always import."""
    names = ["__main__", __name__, "training_imgtool.cli.main", "jinja2", "urllib3"]
    for group in _GROUPS:
        package = import_module(f"training_imgtool.{group}")
        names += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [*(name for name in names if not name.endswith(("google", "launcher"))), "tests.forked_warmth"]


def run(
    arguments: Iterable[str | Path], env: Mapping[str, str], cwd: Path, timeout: float, network: str = ""
) -> tuple[int, bytes, bytes]:
    """Runs `imgtool ARGUMENTS…` for at most `timeout` seconds, else raises TimeoutError.

    With `network`, such as /proc/1/ns/net, it runs in that network. Returns the exit code, which is negative where a
    signal ended the process, stdout and stderr.
    """
    with tempfile.TemporaryDirectory(prefix="imgtool-forked-") as folder:
        output = Path(folder) / "stream"
        process = start([*map(str, arguments)], env, cwd, output, network)
        code = ended(process, timeout)
        if code is None:
            process.kill()
            raise TimeoutError(
                f"imgtool did not end; stderr:\n{output.with_suffix('.err').read_text(errors='replace')}"
            )
        return code, output.with_suffix(".out").read_bytes(), output.with_suffix(".err").read_bytes()


def start(
    arguments: list[str], env: Mapping[str, str], cwd: Path, output: Path, network: str = ""
) -> ForkServerProcess:
    """Begins `imgtool ARGUMENTS…`; both of its streams go to files beside `output`. It may be killed by its pid."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_loaded())
    process = context.Process(target=_run, args=(arguments, dict(env), str(cwd), str(output), network), daemon=True)
    with _ONE_AT_A_TIME:
        process.start()
    return process


def enter_network(path: str) -> None:
    """Moves this thread into a network; the sockets that it makes stay there."""
    new_network = 0x40000000  # CLONE_NEWNET of <sched.h>
    with Path(path).open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), new_network):
            raise OSError(ctypes.get_errno(), "setns")


def ended(process: ForkServerProcess, seconds: float) -> int | None:
    """Waits for a process; its exit code, or None when it did not end in that time."""
    connection.wait([process.sentinel], seconds)
    with _ONE_AT_A_TIME:
        process.join(0)
        return process.exitcode


def _run(arguments: list[str], env: dict[str, str], cwd: str, output: str, network: str) -> None:
    if network:
        enter_network(network)
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
