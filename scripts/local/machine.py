"""What this machine is and does: programs, packages, processes, the state file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / ".services"
_ADMIN_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on every user's PATH


class UnavailableError(Exception):
    """A service that cannot be had here; the message says why and what to do."""


def say(text: str) -> None:
    """Tells the user what goes on."""
    print(text, flush=True)


def program(name: str) -> str | None:
    """The program's path, or None."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_ADMIN_FOLDERS))
    return shutil.which(name, path=path)


def need(name: str, package: str) -> str:
    """The program's path, after installing `package` with apt where it is missing.

    Raises UnavailableError where that cannot be done.
    """
    if path := program(name):
        return path
    if os.geteuid() != 0 or not program("apt-get"):
        raise UnavailableError(f"{name} is missing: install the package {package} (as root: apt-get install {package})")
    say(f"installing {package}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", package]
    for command in (install, ["apt-get", "update"], install):  # the lists may be missing or old
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and command is install:
            break
    path = program(name)
    if not path:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise UnavailableError(f"{name} is missing and apt-get could not install {package}: {last[0]}")
    return path


def start(command: list[str], log: Path) -> int:
    """Starts a process of its own session with its output in `log`; returns its process ID."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
    return process.pid


def running(pid: int) -> bool:
    """Whether the process lives. A child of ours that ended is reaped, so it does not look alive."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def wait_for(answers: Callable[[], bool], pid: int, seconds: float) -> bool:
    """Waits until `answers()`; False when the process ended or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answers():
            return True
        if not running(pid):
            return False
        time.sleep(0.1)
    return False


def stop(pid: int, name: str, seconds: float = 20) -> None:
    """Ends the process `pid` if it still is the program `name`; kills it when it does not end in time."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return
    if Path(command).name != name:  # the ID was given to another process since
        return
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if not running(pid):
                return
            time.sleep(0.1)


def free_port() -> int:
    """A port of the loopback interface that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def last_line(log: Path) -> str:
    """The last line of a log, for a message."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][-300:]
    return "its log is empty"


def read_state() -> dict[str, object]:
    """What `up` started or found; empty when there is no state or it is damaged."""
    try:
        state = json.loads((STATE / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def write_state(**changes: object) -> None:
    """Changes entries of the state; None removes one."""
    state = {**read_state(), **changes}
    STATE.mkdir(exist_ok=True)
    new = STATE / "state.json.new"
    new.write_text(
        json.dumps({key: value for key, value in sorted(state.items()) if value is not None}, indent=1) + "\n"
    )
    new.replace(STATE / "state.json")
