"""The values of environment markers (PEP 508) in an image, without running the image's interpreter."""

from __future__ import annotations

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def full_version(python: str) -> str:
    """Returns an early patch release of CPython `python`, such as 3.11; every base has this one or a later one."""
    return f"{python}.2"


def marker_environment(python: str, platform: str) -> dict[str, str]:
    """Makes the marker variables of CPython `python`, such as 3.11, on `platform`, such as linux/amd64; no extra."""
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
