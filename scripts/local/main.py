"""The commands of scripts/services."""

from __future__ import annotations

import fcntl
import shlex
import sys

from local import (
    bases,
    buildx,
    compose,
    cosign,
    engine,
    engine28,
    kube_apiserver,
    kubernetes,
    machine,
    packages,
    podman5,
    registry,
    slurm,
)
from local.machine import UnavailableError, say

_PACKAGES = {"skypilot": packages.SKYPILOT, "tensorflow": packages.TENSORFLOW}
_BASES = {
    "bases": (bases.PYTHON,),
    "distroless": (bases.DISTROLESS,),
    "python3.7": (bases.PYTHON_3_7,),
    "pythons": bases.PYTHONS,
    "cuda": (bases.CUDA, bases.PYTHON_3_10),  # images/mnist/gpu.yaml needs both
}
_PARTS = (
    "engine", "registry", "bases", "distroless", "python3.7", "pythons", "cuda", "tools", "engine28", "podman5",
    "buildx", "compose", "kubernetes", "kube-apiserver", "cosign", "slurm",
    *_PACKAGES,
)  # fmt: skip
_DEFAULT = ("engine", "registry", "bases")
_TOOLS = (("busybox", "busybox-static"), ("skopeo", "skopeo"), ("umoci", "umoci"))  # program, Debian package


def up(parts: tuple[str, ...]) -> int:
    """Starts the parts; 1 when one of them cannot be had."""
    failed = []
    for part in parts:
        try:
            say(f"{part}: {_start(part)}")
        except UnavailableError as error:
            say(f"{part}: not available: {error}")
            failed.append(part)
    if failed:
        say(f"services: without {', '.join(failed)}; tests that need it are skipped by name")
    return 1 if failed else 0


def _start(part: str) -> str:
    modules = {
        "engine": engine,
        "engine28": engine28,
        "podman5": podman5,
        "buildx": buildx,
        "compose": compose,
        "cosign": cosign,
        "kubernetes": kubernetes,
        "kube-apiserver": kube_apiserver,
        "slurm": slurm,
    }
    if part in modules:
        return str(modules[part].up())
    if part in _PACKAGES:
        return packages.up(_PACKAGES[part])
    if part == "registry":
        return f"{registry.up()} answers"
    if part == "tools":
        return f"{', '.join(machine.need(name, package) for name, package in _TOOLS)}"
    address = registry.up()
    return "; ".join(bases.up(base, address) for base in _BASES[part])


def status() -> int:
    """Shows what answers; 1 when something does not."""
    version = engine.version()
    address = registry.address()
    say(f"engine: {f'Docker Engine {version} answers' if version else 'nothing answers'}")
    say(f"registry: {f'{address} answers' if address else 'nothing answers'}")
    return 0 if version and address else 1


def env() -> int:
    """Prints the shell lines that point imgtool at the registry."""
    address = registry.address()
    if not address:
        print("scripts/services env: no registry answers; run `scripts/services up` first", file=sys.stderr)
        return 1
    for name, value in (
        ("IMGTOOL_MIRRORS", f"docker.io={address},gcr.io={address}"),
        ("IMGTOOL_REGISTRY", f"{address}/demo"),
    ):
        print(f"export {name}={shlex.quote(value)}")
    return 0


def down() -> int:
    """Stops what `up` started."""
    for name, service in (("engine", engine), ("registry", registry)):
        say(f"{name}: {'stopped' if service.down() else 'not started here, left alone'}")
    return 0


def main(arguments: list[str]) -> int:
    """Runs one command; returns its exit status."""
    verb, *parts = arguments or ["help"]
    if verb == "up" and set(parts) <= {*_PARTS, "all"}:
        machine.STATE.mkdir(exist_ok=True)
        with (machine.STATE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would both start an engine
            return up(_PARTS if "all" in parts else tuple(parts) or _DEFAULT)
    if verb in {"status", "env", "down"} and not parts:
        return {"status": status, "env": env, "down": down}[verb]()
    print(f"usage: scripts/services up [all|{'|'.join(_PARTS)}…] | status | env | down", file=sys.stderr)
    return 2
