"""Go programs built from the source packages of Debian's unstable release, without a module proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from local import newer_debian
from local.machine import STATE, UnavailableError, say


def build(name: str, packages: tuple[str, ...], source: str, *, programs: tuple[str, ...] = ()) -> Path:
    """Builds one program into .services/NAME, called as `source` ends; packages and caches are removed again.

    Args:
        name: of the folder.
        packages: Debian's names, besides Go itself.
        source: the import path of what is built.
        programs: further programs to copy, by their path in the packages.

    Raises UnavailableError.
    """
    folder = STATE / name
    root = newer_debian.unpack(name, (*packages, "golang-go"), dependencies=True)
    go = next(root.glob("usr/lib/go-1.*"), None)
    if go is None:
        raise UnavailableError("the packages hold no Go")
    path, cache, target = root / "usr/share/gocode", folder / "cache", folder / source.rpartition("/")[2]
    environ = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "off",
        "GOCACHE": str(cache),
        "GOPATH": str(path),
        "GOROOT": str(go),
        "GOTOOLCHAIN": "local",
    }
    say(f"building {source}")
    command = [go / "bin" / "go", "build", "-o", target, source]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"go build: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    for program in programs:
        shutil.copy2(root / program, folder)
    for rest in (root, cache):
        shutil.rmtree(rest)
    (folder / "ready").unlink()
    return target
