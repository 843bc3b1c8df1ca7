"""Podman 5 with all that it needs, for tests that start its service as an engine."""

from __future__ import annotations

import subprocess

from local import machine, newer_debian
from local.machine import UnavailableError

ROOT = machine.STATE / "podman5" / "root"  # tests/make/engines/support.py starts it there
_PACKAGES = ("podman", "crun", "netavark", "aardvark-dns", "conmon", "nftables", "golang-github-containers-common")
_FOLDERS = ("proc", "sys", "dev", "run", "tmp", "state", "root", "var/tmp", "etc/containers")


def up() -> str:
    """Unpacks Podman and its libraries once; returns the version. Raises UnavailableError."""
    newer_debian.unpack("podman5", _PACKAGES, dependencies=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (ROOT / name).is_symlink():
            (ROOT / name).symlink_to(f"usr/{name}")
    for name in _FOLDERS:
        (ROOT / name).mkdir(parents=True, exist_ok=True)
    (ROOT / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (ROOT / "etc/group").write_text("root:x:0:\n")
    (ROOT / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")  # netavark wants one, and no test asks it
    script = f"mount -t proc proc {ROOT}/proc && exec chroot {ROOT} podman --version"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"podman does not run here: {done.stderr.strip()[:200]}")
    return f"{done.stdout.strip()} in {ROOT.relative_to(machine.CHECKOUT)}, for tests to start"
