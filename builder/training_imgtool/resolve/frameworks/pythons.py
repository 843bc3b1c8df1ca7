"""Finds the Pythons that wheels support, by their file names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from training_imgtool.resolve.versions.matrix import version_key


def list_pythons(files: Iterable[str], version: str, machine: str) -> tuple[str, ...]:
    """Lists the Pythons that a version's wheels, by their file names, support on Linux on a machine, oldest first."""
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
