"""Finds shared libraries that the wheels of a lock need and do not contain, and the imports that load such wheels.

imgtool follows only imports that always run, outside of functions, conditions and `try`, from the program to the
extension module. imgtool reads only wheels in the cache, and refuses nothing because of a wheel that it
cannot read.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

from training_imgtool.base.context.python_source import Import, Module, read_module
from training_imgtool.base.elf import read_library
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.resources import data_file
from training_imgtool.base.wheel_zip import ZIP_ERRORS, Member, MemberReader, WheelFile, open_descriptor, open_wheel
from training_imgtool.model.lock import Wheel
from training_imgtool.resolve.wheels.import_names import find_installed_path
from training_imgtool.resolve.wheels.store import WheelStore

_LIBRARY = re.compile(r"[^/]+\.so(?:\.[\w.-]+)?")
_MOST_RECORD = 4 << 20
_BAD_WHEEL = (*ZIP_ERRORS, OSError)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(data_file("libraries.toml").read_text(encoding="utf-8"))


@cache
def known_wheels() -> frozenset[str]:
    """Returns the hashes of the TensorFlow and CUDA wheels, which need no library that a base lacks."""
    return frozenset(json.loads(data_file("wheel_contents.json").read_bytes()))


@cache
def _always() -> re.Pattern[str]:
    names = "|".join(_tables()["always"]["names"].split())
    return re.compile(rf"(?:{names})(?:\.so[\d.]*)?")


def name_packages(soname: str) -> tuple[str, ...]:
    """Returns the Debian packages that contain a library: first Debian 12's, then those of later releases."""
    name = _tables()["packages"].get(soname)
    return (name, *(later for _, later in _tables()["renamed"].get(name, {}).values())) if name else ()


def choose_package(soname: str, distribution: str, version: str) -> str | None:
    """Returns the Debian package that contains a library in a release such as `debian` 12; None if unknown."""
    name: str | None = _tables()["packages"].get(soname)
    since, later = _tables()["renamed"].get(name, {}).get(distribution, (None, None))
    return later if since and _order(version) >= _order(since) else name


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)) or (1 << 20,)  # testing has no number


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of a wheel: its soname, and the names of the libraries that it needs."""

    soname: str
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """A missing library, and the module whose import loads a library that needs it."""

    soname: str
    module: str


@dataclass(slots=True)
class _Modules:
    """Maps dotted names of modules to their places: wheel and member for a source, path for an extension module."""

    sources: dict[str, tuple[Path, str]] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    extensions: dict[str, str] = field(default_factory=dict)


class WheelLibraries:
    """The shared libraries of a lock's wheels. Leaving its `with` block closes the wheels.

    Args:
        wheels: the wheels.
        store: has the wheels' files.
        cache: remembers the results by the wheel's hash.
        known: hashes of wheels that need no library that a base lacks; imgtool does not read them. A wheel that
            imgtool does not read may contain any library that no Debian package contains.
    """

    def __init__(self, wheels: Iterable[Wheel], store: WheelStore, cache: Path, known: frozenset[str]) -> None:
        wheels = tuple(wheels)
        files = {wheel: store.path(wheel) for wheel in wheels if wheel.sha256 not in known}
        self._files = {wheel: path for wheel, path in files.items() if path is not None}
        self._some_unread = len(self._files) < len(wheels)
        self._cache = cache / "libraries"
        self._parsed: dict[str, Module | None] = {}
        self._archives: dict[Path, zipfile.ZipFile] = {}
        self._is_new = False
        self.is_complete = len(files) == len(self._files)
        """Whether this machine has every wheel."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_new:
            write_cached(self._record, self._loaded, _MOST_RECORD)
        for archive in self._archives.values():
            archive.close()
        self._archives.clear()

    def find_missing(self, brought: frozenset[str]) -> Mapping[str, frozenset[str]]:
        """Maps the path of each library to the missing libraries that it needs, directly or indirectly.

        Args:
            brought: the names of other libraries in the image.
        """
        providers: dict[str, list[str]] = {}
        for path, library in self._libraries.items():
            for name in {path.rpartition("/")[2], library.soname}:
                providers.setdefault(name, []).append(path)
        needed = {path: self._filter(library.needed, brought) for path, library in self._libraries.items()}
        missing = {path: {name for name in names if self._lacks(name, providers)} for path, names in needed.items()}
        found = True
        while found:  # repeat until nothing changes, because libraries may need each other
            found = False
            for path, names in needed.items():
                for name in names & providers.keys():
                    inherited = set.intersection(*(missing[other] for other in providers[name])) - missing[path]
                    missing[path] |= inherited
                    found |= bool(inherited)
        return {path: frozenset(names) for path, names in missing.items() if names}

    def reach(self, item: Import, missing: Mapping[str, frozenset[str]]) -> tuple[Reached, ...]:
        """Lists, sorted, the missing libraries that an absolute import would load."""
        key = " ".join((item.module, *item.names))
        if key not in self._loaded:  # TensorFlow's 600 modules take two seconds to parse
            modules = sorted(self._load(item), reverse=True)
            self._loaded[key] = [[module, path] for module in modules for path in self._list_loaded(module)]
            self._is_new = True
        found = {name: module for module, path in self._loaded[key] for name in missing.get(path, ())}
        return tuple(Reached(name, module.partition(".")[0]) for name, module in sorted(found.items()))

    @cached_property
    def _record(self) -> Path:
        wheels = sorted(wheel.sha256 for wheel in self._files)
        return self._cache / f"{hashlib.sha256(json.dumps(wheels).encode()).hexdigest()}.json"

    @cached_property
    def _loaded(self) -> dict[str, list[list[str]]]:
        """Maps each import to the extension modules that the import always loads, and to their libraries."""
        present = read_cached(self._record, _MOST_RECORD)
        return present if isinstance(present, dict) else {}

    def _lacks(self, name: str, providers: Mapping[str, list[str]]) -> bool:
        return name not in providers and not (self._some_unread and not name_packages(name))

    def _filter(self, needed: Iterable[str], brought: frozenset[str]) -> set[str]:
        return {name for name in needed if name not in brought and not _always().fullmatch(name)}

    @cached_property
    def _libraries(self) -> dict[str, Library]:
        """Maps paths below site-packages to the shared libraries of the wheels."""
        found: dict[str, Library] = {}
        with ThreadPoolExecutor() as pool:  # inflating runs without the interpreter's lock
            reading = [self._read_libraries(wheel, file, pool) for wheel, file in self._files.items()]
            for of_wheel in reading:
                found |= of_wheel()
        return found

    def _read_libraries(self, wheel: Wheel, file: Path, pool: ThreadPoolExecutor) -> Callable[[], dict[str, Library]]:
        """Starts to read a wheel unless the cache contains the result; returns a function that waits for the result."""
        record = self._cache / f"{wheel.sha256}.json"
        present = read_cached(record, _MOST_RECORD)
        if isinstance(present, dict):
            return lambda: {path: Library(row[0], tuple(row[1:])) for path, row in present.items()}
        try:
            opened = open_wheel(file, wheel.sha256)
        except ImgtoolError:
            self.is_complete = False
            return dict
        members = sorted(opened.members, key=lambda member: -member.size)  # TensorFlow has one of 1 GB
        rows = {
            member.name: pool.submit(_read_needed, opened, member)
            for member in members
            if _LIBRARY.fullmatch(member.name.rpartition("/")[2])
        }

        def wait() -> dict[str, Library]:
            try:
                found = {find_installed_path(name): library.result() for name, library in rows.items()}
            except ImgtoolError:
                self.is_complete = False
                return {}
            write_cached(record, {path: [row.soname, *row.needed] for path, row in found.items()}, _MOST_RECORD)
            return found

        return wait

    @cached_property
    def _modules(self) -> _Modules:
        modules = _Modules()
        for file in self._files.values():
            try:
                members = self._open(file).namelist()
            except _BAD_WHEEL:
                continue
            for member in members:
                _add_module(modules, file, member)
        return modules

    def _open(self, file: Path) -> zipfile.ZipFile:
        if file not in self._archives:
            self._archives[file] = zipfile.ZipFile(file)
        return self._archives[file]

    def _list_loaded(self, module: str) -> Iterator[str]:
        """Yields the paths of the libraries that Python loads with a module, including the module itself."""
        if module in self._modules.extensions:
            yield self._modules.extensions[module]
        for pattern in _tables()["opened"].get(module, ()):
            yield from fnmatch.filter(self._libraries, pattern)

    def _load(self, item: Import) -> set[str]:
        """Returns the modules of wheels that an absolute import always loads, directly or indirectly."""
        waiting = [*self._expand(item)]
        found: set[str] = set()
        while waiting:
            module = waiting.pop()
            if module not in found:
                found.add(module)
                for inner in self._list_imports(module):
                    waiting += self._expand(inner)
        return found

    def _expand(self, item: Import) -> Iterator[str]:
        """Yields the modules of wheels that an import names: parent packages, and imported names that are modules."""
        parts = item.module.split(".")
        yield from (name for end in range(1, len(parts) + 1) if self._has(name := ".".join(parts[:end])))
        if item.names:
            source = self._parse(item.module) if item.module in self._modules.sources else None
            is_folder = item.module not in self._modules.sources and item.module not in self._modules.extensions
            for name in item.names:
                inner = f"{item.module}.{name}"
                bound = source.names if source else None
                if self._has(inner) and (is_folder or (bound is not None and name not in bound)):
                    yield inner

    def _has(self, module: str) -> bool:
        return module in self._modules.sources or module in self._modules.extensions

    def _list_imports(self, module: str) -> Iterator[Import]:
        source = self._parse(module) if module not in self._modules.extensions else None
        parts = module.split(".")
        package = parts if module in self._modules.packages else parts[:-1]
        for item in source.imports if source else ():
            if not item.level:
                yield item
            elif item.level <= len(package):
                above = package[: len(package) - item.level + 1]
                yield Import(item.line, ".".join([*above, *filter(None, [item.module])]), names=item.names)

    def _parse(self, module: str) -> Module | None:
        if module not in self._parsed:
            self._parsed[module] = None
            file, member = self._modules.sources[module]
            try:
                self._parsed[module] = read_module(self._open(file).read(member))
            except (*_BAD_WHEEL, SyntaxError, ValueError, MemoryError):
                pass  # its imports are unknown
        return self._parsed[module]


def _read_needed(wheel: WheelFile, member: Member) -> Library:
    with open_descriptor(wheel) as descriptor:
        library = read_library(MemberReader(wheel, member, descriptor))
    return Library(library.soname, library.needed) if library else Library("", ())  # may be named by its file


def _add_module(modules: _Modules, file: Path, member: str) -> None:
    path = find_installed_path(member)
    folder, _, name = path.rpartition("/")
    module = path.removesuffix(".py").replace("/", ".")
    if name == "__init__.py":
        module = folder.replace("/", ".")
        modules.packages.add(module)
    if name.endswith(".py"):
        modules.sources.setdefault(module, (file, member))
    elif name.endswith(".so"):
        modules.extensions.setdefault(f"{folder}/{name.partition('.')[0]}".strip("/").replace("/", "."), path)
