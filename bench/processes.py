"""Runs a command and says what it cost: wall time, CPU time, memory, disk; and what services used meanwhile."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.05  # seconds between looks at memory
_CGROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))  # version 1, version 2


class FailedError(Exception):
    """A command that had to work did not; the message has its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one command took.

    Attributes:
        wall: seconds.
        cpu: seconds of user and system time, of the command and all its children.
        memory: bytes; the largest sum of resident sets of its processes that was seen (looked at every 50 ms).
        largest: bytes; the peak of the one process that was largest.
        written: bytes that it gave the disk to write.
        output: what it printed on stdout.
    """

    wall: float
    cpu: float
    memory: int = 0
    largest: int = 0
    written: int = 0
    output: str = ""


def run(command: list[str], *, environ: Mapping[str, str], folder: Path, watch: bool = False) -> Usage:
    """Runs a command to its end; raises FailedError unless it exits with 0.

    Args:
        command: the program with its arguments.
        environ: its whole environment.
        folder: where it runs.
        watch: look at memory and disk too. That costs a little, so rounds that are about time go without.
    """
    disk = _written()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=dict(environ), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        peak = _Peak(process.pid) if watch else None
        _, status, used = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        memory = peak.stop() if peak else 0
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read())
    if process.returncode:
        last = "\n".join("".join(texts).strip().splitlines()[-12:])
        raise FailedError(f"{' '.join(command[:4])}… exited with {process.returncode}:\n{last}")
    return Usage(
        wall=wall,
        cpu=used.ru_utime + used.ru_stime,
        memory=memory,
        largest=used.ru_maxrss * 1024,
        written=_written() - disk,
        output=texts[0],
    )


def _written() -> int:
    """Bytes that this process and its ended children gave the disk (the kernel adds children when they are reaped)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server of the benchmark: politely, and after 30 seconds by force."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Peak:
    """Looks at the memory of a process and its descendants until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most = pid, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            self._most = max(self._most, sum(map(_resident, descendants(self._pid))))

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._most


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name, or nothing; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> tuple[int, ...]:
    """The process and all below it, as they are now."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 names are numbers here, not paths
        if name.isdigit() and (fields := _stat(int(name))):
            parents.setdefault(int(fields[1]), []).append(int(name))
    pids = [pid]
    for parent in pids:
        pids += parents.get(parent, [])
    return tuple(pids)


def process_seconds(pid: int) -> float:
    """CPU seconds of a process, its ended children, and the descendants that run now."""
    total = 0
    for child in descendants(pid):
        fields = _stat(child)
        total += sum(map(int, fields[11:15])) if fields else 0
    return total / _TICK


class CpuGroup:
    """A control group that counts the CPU time of all that ever ran in it, containers that are gone included."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = next((root / name for root in _CGROUPS if root.is_dir() and self._made(root / name)), None)

    @staticmethod
    def _made(folder: Path) -> bool:
        try:
            (folder / "daemon").mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return (folder / "cgroup.procs").exists()

    @property
    def works(self) -> bool:
        """Whether this machine lets us make one."""
        return self._folder is not None

    def enter(self, pid: int) -> None:
        """Puts a process, and what it starts from now on, into the group."""
        if self._folder:
            (self._folder / "daemon" / "cgroup.procs").write_text(str(pid))

    def around(self, command: list[str]) -> list[str]:
        """A command that enters the group first."""
        if self._folder is None:
            return command
        return ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(self._folder / "daemon" / "cgroup.procs"), *command]

    def seconds(self) -> float:
        """CPU seconds so far."""
        if self._folder is None:
            return 0.0
        usage = self._folder / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        lines = (self._folder / "cpu.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6

    def remove(self) -> None:
        """Removes the group; what still runs in it keeps it."""
        if self._folder is None:
            return
        for folder in sorted((path for path in self._folder.rglob("*") if path.is_dir()), reverse=True):
            _gone(folder)
        _gone(self._folder)


def _gone(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
