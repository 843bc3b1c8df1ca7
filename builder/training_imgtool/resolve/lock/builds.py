"""Finds wheels of one build of a framework, such as torchvision 0.28.0+cpu, on the index for that build.

Such an index also has packages like NumPy. From it, imgtool takes only wheels whose local version is the build's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from training_imgtool.base.progress import Note, Progress
from training_imgtool.model.frameworks import Framework
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.requirements import FIELD, Named, normalise_name
from training_imgtool.resolve.frameworks import Index
from training_imgtool.resolve.versions.closure import Package, is_same_version
from training_imgtool.resolve.versions.rules import Finding
from training_imgtool.resolve.wheels.index.index import hash_local
from training_imgtool.resolve.wheels.index.page import IndexedFile
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.uv import Target
from training_imgtool.resolve.wheels.wheel_tags import choose_wheel

_OWN_WHEEL = (
    "put a wheel of it into a folder that UV_FIND_LINKS names; or leave the line out, and compile it in the image:"
)
_INSTALL = "pip --python /opt/venv/bin/python install --no-build-isolation"
_BUILD = re.compile(r"cpu|cu\d+")


def find_compiled(named: Iterable[Named], framework: Framework, index: Index) -> Iterator[Finding]:
    """Finds requirements without a wheel that a compiler makes for one build of the framework."""
    for row in named:
        name = normalise_name(row.requirement.name)
        if name in framework.compiled and not any(file.endswith(".whl") for file in index.list_files(name)):
            message = f"{row.place}: {name} has no wheel, because it is compiled for one build of {framework.title}"
            yield Finding(FIELD, message, f"{_OWN_WHEEL} `run_after_packages: [{_INSTALL} {row.requirement}]`")


class BuildWheels:
    """The wheels that one variant takes from the index for its build.

    Args:
        store: has the indexes, and keeps wheels whose hash no index states.
        variant: the variant; its framework has several builds if `variant.build` is set.
        target: the image.
        progress: is told of downloads.

    Attributes:
        pages: the wheels by package.
    """

    def __init__(self, store: WheelStore, variant: Variant, target: Target, progress: Progress) -> None:
        self._store, self._variant, self._target, self._progress = store, variant, target, progress
        self._found: dict[tuple[str, str], bool] = {}
        self.pages: dict[str, tuple[IndexedFile, ...]] = {}

    def offer_named(self, named: Iterable[Named]) -> None:
        """Finds the framework, and the packages whose build the requirements name, as in `torchvision==0.28.0+cpu`."""
        build = self._variant.build
        if build:
            self._offer(self._variant.package, self._variant.release)
        for row in named if build else ():
            for pin in row.requirement.specifier:
                if pin.operator == "==" and pin.version.endswith(f"+{build}"):
                    self._offer(normalise_name(row.requirement.name), pin.version.partition("+")[0])

    def list_limits(self, wheels: Iterable[Wheel], requiring: Iterable[Package]) -> Iterator[str]:
        """Yields limits, for resolving again: with them, packages in another build come in the variant's own build.

        Args:
            wheels: the wheels resolved so far.
            requiring: the metadata of the wheels that require the framework.
        """
        build, own = self._variant.build, self._variant.package
        names = {row.name for row in requiring}
        for wheel in wheels:
            public, _, local = wheel.version.partition("+")
            if _BUILD.fullmatch(local) and local != build and wheel.name in {own, *names}:
                yield f"{wheel.name}!={wheel.version}"
            elif not local and self._is_built(wheel, names) and self._offer(wheel.name, public):
                yield f"{wheel.name}=={public}+{build}"

    def _is_built(self, wheel: Wheel, requiring: set[str]) -> bool:
        is_plain = wheel.file.endswith("-none-any.whl")  # has no compiled code
        named = wheel.name in requiring or wheel.name.startswith(self._variant.package)
        return bool(self._variant.build) and named and not is_plain

    def _offer(self, name: str, version: str) -> bool:
        """Returns whether a release has a wheel of the build; puts the wheel into `pages` unless uv finds it itself."""
        key = (name, version)
        if key not in self._found:
            rows = self._select(self._store.index.files(name), version)
            if not rows:
                rows = self._select(self._store.index.files_of_build(name, self._variant.build), version)
                self.pages |= {name: tuple(map(self._with_hash, rows))} if rows else {}
            self._found[key] = bool(rows)
        return self._found[key]

    def _select(self, files: Iterable[IndexedFile], version: str) -> tuple[IndexedFile, ...]:
        local = f"{version}+{self._variant.build}"
        rows = {row.file: row for row in files if is_same_version(row.file.split("-")[1], local)}
        file = choose_wheel(rows, self._target.python, self._target.platform, self._target.glibc)
        return (rows[file],) if file else ()

    def _with_hash(self, row: IndexedFile) -> IndexedFile:
        """Adds the hash if the index does not state it."""
        if row.sha256 is not None:
            return row
        if row.url.startswith("file:"):
            return replace(row, sha256=hash_local(row.url))
        wheel = self._store.fetch_unhashed(row.file, row.url)
        where = f"{self._variant.name}: {row.file}"
        self._progress(Note(f"{where}: the index states no hash, so imgtool downloaded and hashed the file"))
        return replace(row, sha256=wheel.sha256, size=wheel.size, url=self._store.require(wheel).as_uri())
