"""The values of environment markers (PEP 508) in an image, without a run of its interpreter."""

from __future__ import annotations

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def marker_environment(python: str, platform: str) -> dict[str, str]:
    """Makes the marker variables of CPython `python`, such as 3.11, on `platform`, such as linux/amd64; no extra."""
    architecture = platform.split("/")[1]
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": _MACHINES.get(architecture, architecture),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }
