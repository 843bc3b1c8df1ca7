"""Docker's plugin buildx, for tests that build with BuildKit; it is not installed."""

from __future__ import annotations

import os
import subprocess

from local import machine, newer_debian
from local.machine import UnavailableError

PROGRAMS = machine.STATE / "buildx" / "bin"  # tests/servers/buildkit.py looks there


def up() -> str:
    """Unpacks the plugin once; returns the version. Raises UnavailableError."""
    root = newer_debian.unpack("buildx", ("docker-buildx",))
    PROGRAMS.mkdir(exist_ok=True)
    program = PROGRAMS / "docker-buildx"
    if not program.is_symlink():
        program.symlink_to(root / "usr/libexec/docker/cli-plugins/docker-buildx")
    done = subprocess.run([program, "version"], capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise UnavailableError(f"buildx does not run here: {done.stderr.strip()[:200]}")
    return f"{done.stdout.strip()} in {PROGRAMS.relative_to(machine.CHECKOUT)}"
