"""Checks that the image has the shared libraries that the program's imports load.

The libraries may come from the base, the Debian packages or the wheels. imgtool refuses an import only if the import
fails for sure and imgtool knows the Debian package that contains the library. imgtool reads the base only for such an
import.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from training_imgtool.base.errors import FieldError, ImgtoolError
from training_imgtool.model.frameworks import Framework
from training_imgtool.plan.inputs import Inputs, RoleImage
from training_imgtool.resolve.wheels.libraries import (
    Reached,
    WheelLibraries,
    choose_package,
    known_wheels,
    name_packages,
)

if TYPE_CHECKING:
    from imgtool_debian_layers import BaseSystem
    from training_imgtool.base.context.python_source import Import
    from training_imgtool.oci.machine import Machine

_RELEASE = re.compile(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', re.MULTILINE)


class MissingLibraryError(FieldError):
    """An import loads a shared library that the image lacks; `packages` are the Debian packages that provide it."""

    def __init__(self, message: str, *, location: str, packages: tuple[str, ...]) -> None:
        cure = f"system_packages: [{', '.join(packages)}]; " if packages else ""
        super().__init__(message, field="", location=location, hint=f"{cure}--no-check skips this check")
        self.packages = packages


class LibraryCheck:
    """Checks the imports of one role's program.

    Attributes:
        is_complete: whether imgtool could read everything that the result depends on.
    """

    def __init__(self, inputs: Inputs, image: RoleImage, machine: Machine) -> None:
        self._inputs, self._image, self._machine = inputs, image, machine
        debian = image.locked.debian
        requested = (*image.system_packages, *(debian.requested if debian else ()))
        self._packages = {name.partition("=")[0] for name in requested}
        self._packages |= {row.name for row in debian.packages} if debian else set()
        self._knows_packages = debian is None or not debian.engine
        self._told: set[str] = set()
        self.is_complete = True

    def run(self, imports: Iterable[tuple[str, Import, bool]]) -> Iterator[tuple[FieldError, bool]]:
        """Yields an error for each wheel import whose library the image lacks, and whether the import fails for sure.

        Args:
            imports: absolute imports with their places, and whether each is sure to run. The check begins with the sure
                imports.
        """
        from training_imgtool.make.run_wheels import open_wheel_store

        needed = self._image.locked.needed_libraries
        if needed is not None and all(name in self._of_trainer or self._is_installed(name) for name in needed):
            return
        settings = self._machine.settings
        store, cache = open_wheel_store(self._inputs, settings), settings.cache
        framework, wheels = self._image.locked.variant.framework, self._image.locked.wheels
        known = known_wheels() | {wheel.sha256 for wheel in wheels if _is_complete(wheel.name, framework)}
        with WheelLibraries(wheels, store, cache, known) as libraries:
            missing = {
                path: left
                for path, names in libraries.find_missing(self._of_trainer).items()
                if (left := frozenset(name for name in names if not self._is_installed(name)))
            }
            # A lock that trims was made with all wheels at hand, so a machine without wheels need not repeat the check.
            self.is_complete = libraries.is_complete or (
                self._inputs.spec_file.spec.trim is not False and framework.trims
            )
            for place, item, is_sure in sorted(imports, key=lambda row: not row[2]) if missing else ():
                lacks = [row for row in libraries.reach(item, missing) if self._is_missing(row.soname)]
                if new := [row for row in lacks if row.soname not in self._told]:
                    self._told |= {row.soname for row in new}
                    yield self._describe(place, item, new, is_sure=is_sure)

    @cached_property
    def _of_trainer(self) -> frozenset[str]:
        """The names of the shared libraries in the build context."""
        names = (posixpath.basename(entry.path) for entry in self._inputs.context.entries)
        return frozenset(name for name in names if ".so" in name)

    def _is_installed(self, soname: str) -> bool:
        """Tells whether a package in the image contains the library, or may do so (if no table lists the library)."""
        packages = name_packages(soname)
        return bool(self._packages.intersection(packages)) if packages else bool(self._packages)

    def _is_missing(self, soname: str) -> bool:
        return self._of_base is not None and soname not in self._of_base

    @cached_property
    def _base(self) -> BaseSystem | None:
        from training_imgtool.plan.debian_stage import read_base_system

        try:
            return read_base_system(self._image.recipe.base, self._machine)
        except ImgtoolError:
            self.is_complete = False
            return None

    @cached_property
    def _of_base(self) -> frozenset[str] | None:
        return frozenset(map(posixpath.basename, self._base.nodes)) if self._base else None

    def _describe(self, place: str, item: Import, new: list[Reached], *, is_sure: bool) -> tuple[FieldError, bool]:
        release = dict(_RELEASE.findall(self._base.text("/usr/lib/os-release"))) if self._base else {}
        chosen = {
            row.soname: choose_package(row.soname, release.get("ID", ""), release.get("VERSION_ID", "")) for row in new
        }
        packages = tuple(sorted({name for name in chosen.values() if name}))
        owners = sorted({row.module for row in new})
        top = item.module.partition(".")[0]
        others = [name for name in owners if name != top]
        who = f"{top} needs" if not others else f"{top} imports {' and '.join(others)}, which needs"
        message = f"{who} {' and '.join(chosen)}, which neither the base nor a package of the image has"
        is_sure = is_sure and bool(packages) and self._knows_packages and bool(release)
        return MissingLibraryError(message, location=place, packages=packages), is_sure


def _is_complete(name: str, framework: Framework) -> bool:
    return any(name == own or (own[-1] == "-" and name.startswith(own)) for own in framework.complete)
