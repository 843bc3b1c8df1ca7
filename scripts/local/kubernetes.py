"""A Kubernetes API server for custom resources, for tests that have it judge JobSets and TFJobs.

It is the apiextensions-apiserver, built from the Go packages of Debian's unstable release, and etcd: the code with
which a cluster's API server takes custom resources. It decodes strictly, and checks schemas, CEL rules, names and
labels.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from local import machine, newer_debian
from local.machine import UnavailableError, say

FOLDER = machine.STATE / "kubernetes"
SERVER, ETCD = FOLDER / "apiextensions-apiserver", FOLDER / "etcd"  # tests/servers/kubernetes.py starts them
_PACKAGES = ("golang-k8s-apiextensions-apiserver-dev", "golang-go", "etcd-server")
_SOURCE = "k8s.io/apiextensions-apiserver"


def up() -> str:
    """Builds the server once, in minutes and with 4 GB for a while; returns where it is. Raises UnavailableError."""
    if not (SERVER.exists() and ETCD.exists()):
        root = newer_debian.unpack("kubernetes", _PACKAGES, dependencies=True)
        go = next(root.glob("usr/lib/go-1.*"), None)
        if go is None:
            raise UnavailableError("the packages hold no Go")
        cache = FOLDER / "cache"
        environ = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GO111MODULE": "off",
            "GOCACHE": str(cache),
            "GOPATH": str(root / "usr/share/gocode"),
            "GOROOT": str(go),
            "GOTOOLCHAIN": "local",
        }
        say(f"building {_SOURCE}")
        command = [go / "bin" / "go", "build", "-o", SERVER, _SOURCE]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"go build: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        shutil.copy2(root / "usr/bin/etcd", ETCD)
        for folder in (root, cache):
            shutil.rmtree(folder)
        (FOLDER / "ready").unlink()
    return f"{SERVER.relative_to(machine.CHECKOUT)} and etcd, for tests to start"
