"""A base image that needs no download: busybox, and a `python` that names a folder of no modules as its library."""

from __future__ import annotations

import io
import tarfile
from functools import cache
from pathlib import Path

from tests.integration.push_world import BASE_TAG, Base, wrap_layer

_BUSYBOX = Path("/bin/busybox")
_PYTHON = b'#!/bin/sh\n[ "$1" != -IBSc ] || echo /etc\n'
_PROGRAMS = ("sh", "cat", "cp", "echo", "env", "false", "ln", "ls", "mkdir", "printf", "rm", "seq", "sleep", "true")


@cache
def base_image(platform: str = "linux/amd64") -> Base:
    """The stand-in for python:3.11-slim-bookworm, the same bytes each time; its config names `platform`."""
    return wrap_layer(_layer(), {"Cmd": ["sh"]}, platform=platform)


def put_base(host: str, tag: str = BASE_TAG, platform: str = "linux/amd64") -> None:
    """Puts the base into the registry at HOST:PORT."""
    base_image(platform).put(host, tag=tag)


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "tmp", "usr", "usr/bin", "usr/local", "usr/local/bin", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        files = {"etc/os-release": b"ID=debian\nVERSION_ID=12\n", "usr/local/bin/python3.11": _PYTHON}
        if _BUSYBOX.is_file():  # without it only an engine misses something
            files["bin/busybox"] = _BUSYBOX.read_bytes()
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name in _PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return buffer.getvalue()
