"""The programs of Docker Engine 28, for tests that start it beside this machine's own with either image store."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from local import machine, newer_debian
from local.machine import UnavailableError

PROGRAMS = machine.STATE / "engine28" / "bin"  # tests/make/engines/support.py looks there


def up() -> str:
    """Unpacks the programs once; returns the version. Raises UnavailableError."""
    runc = machine.need("runc", "runc")
    root = newer_debian.unpack("engine28", ("docker.io", "containerd"))
    PROGRAMS.mkdir(exist_ok=True)
    programs = [path for folder in ("usr/bin", "usr/sbin") for path in (root / folder).glob("*")]
    for program in (*programs, Path(runc)):
        link = PROGRAMS / program.name
        if not link.is_symlink():
            link.symlink_to(program)
    dockerd = PROGRAMS / "dockerd"
    if not dockerd.exists():
        raise UnavailableError(f"the packages hold no dockerd: {dockerd}")
    done = subprocess.run([dockerd, "--version"], capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise UnavailableError(f"dockerd does not run here: {done.stderr.strip()[:200]}")
    return f"{done.stdout.strip()} in {PROGRAMS.relative_to(machine.CHECKOUT)}, for tests to start"
