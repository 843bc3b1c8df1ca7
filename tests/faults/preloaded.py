"""`imgtool` as a process that skips Python's start: a server that has imported it forks for each command.

Interpreter and imports are most of the CPU time of a command that refuses its spec, and the tests run hundreds of
those. What runs here has its own process, environment, folder and streams, and ends as the command ends. Variables that
Python or a library reads while it starts have no effect: tests of those start the command itself.
"""

from __future__ import annotations

import atexit
import json
import os
import pkgutil
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_READ_LATE = ("PATH", "HOME", "TMPDIR", "XDG_", "IMGTOOL_", "DOCKER_", "UV_", "PIP_", "NO_GCE_CHECK", "FAULTS_MARK")
_ROOMS = ("cli", "commands", "build", "context", "core", "dockerfile", "jobs", "lock", "registry", "spec", "versions")


def applies_to(names: Iterable[str]) -> bool:
    """Whether `imgtool` reads these variables when it needs them, and nothing reads them before."""
    return all(name.startswith(_READ_LATE) for name in names)


class Server:
    """A process that runs commands one after the other."""

    def __init__(self, program: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="imgtool-preloaded-"))
        command = [sys.executable, __file__, str(program), str(self._folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env={"PATH": os.defpath}, bufsize=0, **pipes)
        atexit.register(self.close)

    def run(
        self, arguments: Sequence[str], *, environ: Mapping[str, str], cwd: Path, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Returns exit code, stdout and stderr of a command; kills it and raises TimeoutError after `timeout` seconds.

        The code is negative where a signal ended the command, as with subprocess.
        """
        out, err = self._folder / "out", self._folder / "err"
        request = {"arguments": arguments, "environ": environ, "cwd": str(cwd), "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        pid = self._answer()
        ended = self._ends_within(timeout)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        code = self._answer()
        if not ended:
            raise TimeoutError(err.read_text(errors="replace"))
        return code, out.read_bytes(), err.read_bytes()

    def close(self) -> None:
        """Ends the process, which removes its folder, as it does when this process dies."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._stdout.close()

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _answer(self) -> int:
        line = self._stdout.readline()
        assert line, "the server of preloaded commands ended"
        return int(line)

    def _ends_within(self, timeout: float) -> bool:
        return bool(select.select([self._stdout], [], [], timeout)[0])


@cache
def server(program: Path) -> Server:
    """The server of this test process."""
    return Server(program)


def _import_all() -> None:
    """Imports what the verbs import late; of other packages only what they always import."""
    for room in _ROOMS:
        package = import_module(f"training_imgtool.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("google", "launcher")):
                import_module(module.name)


def _serve() -> None:
    sys.path[0] = str(Path(sys.argv[1]).parent)  # as the command itself has it
    from training_imgtool.cli.main import main

    _import_all()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            requests.close()
            answers.close()
            _become(json.loads(line))
            main()
        answers.write(b"%d\n" % pid)
        answers.write(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    shutil.rmtree(sys.argv[2])


def _become(request: Mapping[str, Any]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, request["out"], flags), (2, request["err"], flags)):
        opened = os.open(path, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.argv = [sys.argv[1], *request["arguments"]]


if __name__ == "__main__":
    _serve()
