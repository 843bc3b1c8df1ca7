"""Which other builders this machine has, and their versions.

IMGTOOL_PEERS=DIR names a folder with bin/crane, cli-plugins/docker-buildx and, if there is one, engine/dockerd with its
containerd: an Engine newer than the machine's own, for a fairer race. What is not there is looked for on PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PLUGIN_FOLDERS = (
    "~/.docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Programs to race against; None where there is none."""

    docker: Path | None
    buildx: Path | None
    crane: Path | None
    dockerd: Path | None  # the machine's own
    newer_dockerd: Path | None  # DIR/engine/dockerd
    newer_containerd: Path | None  # DIR/engine/containerd


def find_peers(environ: Mapping[str, str]) -> Peers:
    """Looks into IMGTOOL_PEERS, then on PATH."""
    folder = Path(environ["IMGTOOL_PEERS"]) if environ.get("IMGTOOL_PEERS") else None
    own = folder / "engine" / "dockerd" if folder else None
    plugins = [Path(text).expanduser() / "docker-buildx" for text in _PLUGIN_FOLDERS]
    if folder:
        plugins.insert(0, folder / "cli-plugins" / "docker-buildx")
    path = environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    return Peers(
        docker=_program("docker", None, path),
        buildx=next((plugin for plugin in plugins if plugin.exists()), None),
        crane=_program("crane", folder, path),
        dockerd=_program("dockerd", None, path),
        newer_dockerd=own if own is not None and own.exists() else None,
        newer_containerd=own.with_name("containerd") if own is not None and own.exists() else None,
    )


def _program(name: str, folder: Path | None, path: str) -> Path | None:
    own = folder / "bin" / name if folder else None
    if own and own.exists():
        return own
    installed = shutil.which(name, path=path)
    return Path(installed) if installed else None


def version_of(command: list[str]) -> str:
    """The first line of what a program says of its version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "?"
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "?")
