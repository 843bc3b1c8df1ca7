"""Copies of a checkout, each with an environment whose `imgtool` is the copy's, and pytest in them."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "builder/training_imgtool"

_OURS = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV"}  # without bytecode each start compiles all again
_DATES = itertools.count(1_000_000_000)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of pytest ended: its status, None when it took too long, and what it printed."""

    status: int | None
    output: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of a checkout."""

    folder: Path

    @property
    def package(self) -> Path:
        """The copied package."""
        return self.folder / PACKAGE

    def write(self, module: str, source: bytes) -> None:
        """Writes a module, with a date that none had: bytecode is taken by its source's size and date in seconds."""
        path = self.package / module
        path.write_bytes(source)
        date = next(_DATES)
        os.utime(path, (date, date))

    def pytest(self, arguments: Iterable[str], seconds: float, env: dict[str, str] | None = None) -> Ended:
        """Runs pytest in the copy for at most `seconds`; nothing that it started stays."""
        command = [str(self.folder / ".venv/bin/python"), "-m", "pytest", *arguments]
        environ = {name: value for name, value in os.environ.items() if name not in _OURS}
        output = self.folder / ".output"
        # Of its own, since pytest removes what ended runs left beside its folder, two at once the same.
        with output.open("w") as stream, TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as temporary:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**environ, "PYTEST_DEBUG_TEMPROOT": temporary, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_session(process.pid)
                process.wait()
        return Ended(status, output.read_text(errors="replace"))


def _end_session(leader: int) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (PermissionError, ProcessLookupError):
                continue


def copy(checkout: Path, folder: Path) -> Tree:
    """Copies what git knows of a checkout, as it lies there, with an environment of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=checkout, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = checkout / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    if (checkout / ".services").is_dir():
        (folder / ".services").symlink_to((checkout / ".services").resolve())
    beside = checkout.resolve().parent / "shared"  # schemas that tests read where they are
    if beside.exists() and not (folder.parent / "shared").exists():
        (folder.parent / "shared").symlink_to(beside)
    _make_environment(folder)
    return Tree(folder)


def _make_environment(folder: Path) -> None:
    """Makes a virtual environment with the packages of this one, and the copy's in place of its own."""
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = venv / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "copy.pth").write_text(f"{folder / 'builder'}\n{sysconfig.get_path('purelib')}\n")
    for program in (Path(sys.prefix) / "bin").iterdir():
        target = venv / "bin" / program.name
        if target.exists() or not program.is_file():
            continue
        start, _, rest = program.read_bytes().partition(b"\n")
        if start.startswith(b"#!") and b"python" in start:
            target.write_bytes(f"#!{venv / 'bin/python'}\n".encode() + rest)
            target.chmod(0o755)
        else:
            target.symlink_to(program)
