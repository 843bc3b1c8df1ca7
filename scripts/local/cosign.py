"""cosign 2 and 3, which sign images, for tests that sign and check with each."""

from __future__ import annotations

import subprocess

from local import machine, newer_debian
from local.machine import UnavailableError

_RELEASES = {"cosign2": "trixie", "cosign3": "sid"}  # tests/integration/test_sign.py finds both below .services


def up() -> str:
    """Unpacks both programs once; returns where they are. Raises UnavailableError."""
    found = []
    for name, release in _RELEASES.items():
        program = newer_debian.unpack(name, ("cosign",), release=release) / "usr/bin/cosign"
        done = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"cosign does not run here: {done.stderr.strip()[:200]}")
        found.append(str(program.relative_to(machine.CHECKOUT)))
    return ", ".join(found)
