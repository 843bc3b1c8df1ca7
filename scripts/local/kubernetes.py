"""A Kubernetes API server for custom resources, for tests that have it judge JobSets and TFJobs.

It is the apiextensions-apiserver, built from the Go packages of Debian's unstable release, and etcd: the code with
which a cluster's API server takes custom resources. It decodes strictly, and checks schemas, CEL rules, names and
labels.
"""

from __future__ import annotations

from local import go_programs, machine

FOLDER = machine.STATE / "kubernetes"
SERVER, ETCD = FOLDER / "apiextensions-apiserver", FOLDER / "etcd"  # tests/servers/kubernetes.py starts them
_PACKAGES = ("golang-k8s-apiextensions-apiserver-dev", "etcd-server")


def up() -> str:
    """Builds the server once, in minutes and with 4 GB for a while; returns where it is. Raises UnavailableError."""
    if not (SERVER.exists() and ETCD.exists()):
        source = "k8s.io/apiextensions-apiserver"
        go_programs.build("kubernetes", _PACKAGES, source, programs=("usr/bin/etcd",))
    return f"{SERVER.relative_to(machine.CHECKOUT)} and etcd, for tests to start"
