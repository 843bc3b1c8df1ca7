"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from bench.peers import Peers, version_of
from bench.world import World


def describe(peers: Peers, world: World, python: str) -> str:
    """Machine and versions, as lines of a Markdown list; `python` is what imgtool runs on."""
    rows = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} cores of {_field('/proc/cpuinfo', 'model name')}, {_memory()} GB",
        "SHA instructions": "yes" if "sha_ni" in Path("/proc/cpuinfo").read_text() else "no",
        "system": f"{_field('/etc/os-release', 'PRETTY_NAME')}, Linux {platform.release()}",
        "Python": python,
        "load when it began": Path("/proc/loadavg").read_text().split()[0],
        "registry": version_of(["docker-registry", "--version"]),
        "buildx": version_of([str(peers.buildx), "version"]) if peers.buildx else "none here: its columns are missing",
        "engines": ", ".join(engine.version for engine in world.engines.values())
        or "none here: their columns are missing",
        "crane": _crane(peers.crane) if peers.crane else "none here: its columns are missing",
    }
    return "".join(f"- {name}: {value}\n" for name, value in rows.items())


def _crane(crane: Path) -> str:
    said = version_of([str(crane), "version"])
    return "does not say its version, as Debian builds it" if "could not determine" in said else said


def _field(path: str, name: str) -> str:
    """The value of the first `name: value` or `name=value` line."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.replace("=", ":", 1).partition(":")[2].strip().strip('"')
    return "?"


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
