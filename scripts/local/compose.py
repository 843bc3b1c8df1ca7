"""Docker Compose, for tests that have it read Compose files."""

from __future__ import annotations

import subprocess

from local import machine, newer_debian
from local.machine import UnavailableError

PROGRAM = machine.STATE / "compose/root/usr/libexec/docker/cli-plugins/docker-compose"


def up() -> str:
    """Unpacks the program once; returns its version. Raises UnavailableError."""
    newer_debian.unpack("compose", ("docker-compose",))
    done = subprocess.run([PROGRAM, "version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"docker-compose does not run here: {done.stderr.strip()[:200]}")
    return f"{done.stdout.strip()} in {PROGRAM.parent.relative_to(machine.CHECKOUT)}"
