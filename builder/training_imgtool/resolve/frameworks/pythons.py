"""Finds the Python versions that wheels support, from the file names of the wheels. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from training_imgtool.resolve.versions.matrix import version_key


def list_pythons(files: Iterable[str], version: str, machine: str) -> tuple[str, ...]:
    """Lists the Python versions, oldest first, that the wheels of `version` support on Linux and `machine`."""
    found = set()
    for file in files:
        try:
            _, of_file, _, tags = parse_wheel_filename(file)
        except ValueError:
            continue
        if of_file == Version(version):
            found |= {
                f"{tag.interpreter[2]}.{tag.interpreter[3:]}"
                for tag in tags
                if tag.interpreter.startswith("cp3") and "linux" in tag.platform and tag.platform.endswith(machine)
            }
    return tuple(sorted(found, key=version_key))
