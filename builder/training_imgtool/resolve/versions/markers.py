"""Computes the values of environment markers (PEP 508) in an image, without running the image's Python."""

from __future__ import annotations

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def full_version(python: str) -> str:
    """Returns an early patch release of the minor `python`, such as 3.11; no base has an earlier one."""
    return f"{python}.2"


def marker_environment(python: str, platform: str) -> dict[str, str]:
    """Makes the marker variables, without `extra`, of CPython `python` (3.11) on `platform` (linux/amd64)."""
    architecture = platform.split("/")[1]
    return {
        "implementation_name": "cpython",
        "implementation_version": full_version(python),
        "os_name": "posix",
        "platform_machine": _MACHINES.get(architecture, architecture),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full_version(python),
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }
