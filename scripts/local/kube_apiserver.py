"""The API server of a Kubernetes cluster, for tests that have it judge Pods and Services.

It is Kubernetes 1.20, the newest whose whole source Debian has, built with the Go of the same release; etcd beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from local import machine, newer_debian
from local.machine import UnavailableError, say

FOLDER = machine.STATE / "kube-apiserver"
SERVER, ETCD = FOLDER / "kube-apiserver", FOLDER / "etcd"  # tests/servers/kubernetes.py starts them
_RELEASE = "bookworm"
_PACKAGES = ("golang-1.19-go", "etcd-server")
_OPENAPI = "pkg/generated/openapi"  # upstream's makefile generates this package


def up() -> str:
    """Builds the server once, in ten minutes and with 3 GB for a while; returns where. Raises UnavailableError."""
    if not (SERVER.exists() and ETCD.exists()):
        root = newer_debian.unpack("kube-apiserver", _PACKAGES, dependencies=True, release=_RELEASE)
        source = newer_debian.source("kube-apiserver", "kubernetes", release=_RELEASE)
        _build(root, source)
        shutil.copy2(root / "usr/bin/etcd", ETCD)
        for folder in (root, FOLDER / "source", FOLDER / "go"):
            shutil.rmtree(folder)
        (FOLDER / "ready").unlink()
    return f"{SERVER.relative_to(machine.CHECKOUT)} and etcd, for tests to start"


def _build(root: Path, source: Path) -> None:
    path, go = FOLDER / "go", root / "usr/lib/go-1.19"
    checkout = path / "src/k8s.io/kubernetes"
    checkout.parent.mkdir(parents=True, exist_ok=True)
    if not checkout.is_symlink():
        checkout.symlink_to(source)
    environ = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "off",
        "GOCACHE": str(path / "cache"),
        "GOPATH": str(path),
        "GOROOT": str(go),
    }
    generator = path / "openapi-gen"
    _run((go / "bin/go", "build", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"), checkout, environ)
    described = ",".join(_described(checkout))
    options = {
        "input-dirs": described, "output-package": f"k8s.io/kubernetes/{_OPENAPI}", "output-base": path / "src",
        "output-file-base": "zz_generated.openapi", "go-header-file": "/dev/null", "report-filename": "/dev/null",
    }  # fmt: skip
    with_go = {**environ, "PATH": f"{go / 'bin'}:{environ['PATH']}"}
    _run((generator, *(f"--{name}={value}" for name, value in options.items())), checkout, with_go)
    _run((go / "bin/go", "build", "-o", SERVER, "./cmd/kube-apiserver"), checkout, environ)


def _described(checkout: Path) -> list[str]:
    """The packages whose types the API describes: those that ask for it in a comment."""
    packages = {f"k8s.io/kubernetes/{file.parent.relative_to(checkout)}" for file in _asking(checkout / "pkg")}
    for staged in sorted((checkout / "vendor/k8s.io").iterdir()):
        if staged.is_symlink() and staged.name not in {"code-generator", "sample-apiserver"}:
            here = staged.resolve()
            packages |= {
                f"k8s.io/kubernetes/vendor/k8s.io/{staged.name}/{file.parent.relative_to(here)}".removesuffix("/.")
                for file in _asking(here)
            }
    return sorted(packages)


def _asking(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*.go") if b"+k8s:openapi-gen=" in file.read_bytes()]


def _run(command: tuple[object, ...], checkout: Path, environ: dict[str, str]) -> None:
    say(f"kube-apiserver: {Path(str(command[0])).name} {command[-1]}"[:100])
    done = subprocess.run(
        [str(word) for word in command],
        cwd=checkout,
        env={**environ, "PWD": str(checkout)},  # the link's own path lies below GOPATH
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"{command[0]}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
