"""Slurm, for tests that submit batch scripts: its programs and headers, unpacked; tests start the daemons."""

from __future__ import annotations

from local import machine, newer_debian

ROOT = machine.STATE / "slurm/root"
_PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "libslurm-dev",
    "libmunge2",
    "libhwloc15",
)


def up() -> str:
    """Unpacks the programs once. Raises UnavailableError."""
    newer_debian.unpack("slurm", _PACKAGES, release="bookworm")
    return f"Slurm unpacked in {ROOT.relative_to(machine.CHECKOUT)}, for tests to start"
