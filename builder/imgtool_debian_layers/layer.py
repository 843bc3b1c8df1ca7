"""Makes the entries of one layer for an installation: packages' files, effects of scripts, loader cache, databases."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from imgtool_debian_layers import certificates, database
from imgtool_debian_layers.alternatives import make_alternatives
from imgtool_debian_layers.base_system import BaseSystem, Node, resolve
from imgtool_debian_layers.database import InstalledPackage, open_package
from imgtool_debian_layers.effects import make_effect, replaced_path
from imgtool_debian_layers.errors import NeedsAptError
from imgtool_debian_layers.loader_cache import (
    FLAGS,
    CachedLibrary,
    LoaderCache,
    list_folders,
    read_cache,
    write_cache,
)
from imgtool_debian_layers.package_file import Package, PackedFile, read_files
from imgtool_debian_layers.scripts import (
    AT_INSTALL,
    Effect,
    EffectKind,
    find_script_effects,
    find_trigger_effects,
    hash_table,
)
from imgtool_debian_layers.unpack import Entry, Unpacking

_VERSION = 3  # raise it when layers are made in another way
_LIBRARY = re.compile(r"(?:lib.*|ld-.*)\.so(?:\..+)?")
_LOADER_CONF = "/etc/ld.so.conf"
_KEPT = (_LOADER_CONF, certificates.SHIPPED)  # files whose content effects read
_CACHE = "/etc/ld.so.cache"
_EMPTIED = ("/var/lib/apt/lists", "/var/log/apt")  # folders that image builds usually empty at the end
_REMOVED = (
    "/var/cache/apt/pkgcache.bin",
    "/var/cache/apt/srcpkgcache.bin",
    "/var/cache/ldconfig/aux-cache",
    "/var/log/alternatives.log",
    "/var/log/dpkg.log",
)

ReadLibrary = Callable[[bytes], tuple[str, int] | None]
"""Reads the DT_SONAME (empty if missing) and the e_machine of a shared library; returns None for any other file."""


class _Library(NamedTuple):
    soname: str
    machine: int


def layer_version() -> str:
    """Returns what decides a layer's bytes besides the inputs: versions of this code and of the table of scripts."""
    return f"{_VERSION}-{hash_table()}"


def make_layer(
    system: BaseSystem,
    packages: Iterable[tuple[Package, Path]],
    requested: tuple[str, ...],
    architecture: str,
    read_library: ReadLibrary,
    *,
    sonames: tuple[str, ...] = (),
    library_path: str = "",
) -> Iterator[Entry]:
    """Yields the entries of the layer that an installation of packages makes, in the layer's order.

    Args:
        system: the base.
        packages: the packages that apt installs, in apt's order, each with its verified file.
        requested: the packages that were asked for, `NAME` or `NAME=VERSION`.
        architecture: Debian's name, such as `amd64`.
        read_library: reads the header of a library.
        sonames: libraries that the loader must find after the installation.
        library_path: the LD_LIBRARY_PATH that the loader has then.

    Raises:
        NeedsAptError: a script, a trigger or a file has an effect that is not known.
        DamagedError: a package is damaged, or its name is wrong.
        OSError: a file cannot be read.
    """
    installed = [open_package(package, file) for package, file in packages]
    _check_base(system, installed)
    effects = [effect for package in installed for effect in _list_effects(package)]
    installation = Installation(Unpacking(system, frozenset(map(replaced_path, effects))), read_library)
    installation.sources = frozenset(effect.target for effect in effects if effect.kind is EffectKind.COPY)
    for package in installed:
        for file in read_files(package.file):
            yield from installation.unpack(package, file)
    for owner, trigger in database.find_activated_triggers(system, installed):
        effects += find_trigger_effects(owner, trigger)
    yield from installation.apply(tuple(dict.fromkeys(effects)))
    installation.check_libraries(sonames, library_path)
    yield from _clean(system)
    states = database.mark_automatic(system, installed, requested, architecture)
    if states != system.texts.get(database.EXTENDED_STATES, b""):
        yield from installation.image.write(database.EXTENDED_STATES, states)
    if installed:
        for path, mode, data in (
            *database.make_database_files(system, installed),
            *database.make_trigger_files(system, installed),
        ):
            yield from installation.image.write(path, data, mode)


def _check_base(system: BaseSystem, installed: list[InstalledPackage]) -> None:
    names = {name for name, _ in database.read_installed(system)}
    upgraded = sorted(package.name for package in installed if package.name in names)
    if upgraded:
        raise NeedsAptError(f"apt replaces {', '.join(upgraded)} of the base with another version")
    if system.text("/var/lib/dpkg/statoverride").strip():
        raise NeedsAptError("the base has a statoverride, which changes what dpkg installs")


@dataclass(slots=True)
class Installation:
    """An installation in progress.

    Attributes:
        image: the image's files so far.
        read_library: reads the header of a library.
        sources: files that scripts copy.
    """

    image: Unpacking
    read_library: ReadLibrary
    sources: frozenset[str] = frozenset()
    _libraries: dict[str, _Library] = field(default_factory=dict)
    _contents: dict[str, bytes] = field(default_factory=dict)  # contents of files that effects read
    _cache: bytes = field(init=False)
    _diverted: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        system = self.image.system
        self._cache = system.texts.get(_CACHE, b"")
        self._diverted = frozenset(system.text("/var/lib/dpkg/diversions").splitlines())

    def unpack(self, package: InstalledPackage, file: PackedFile) -> Iterator[Entry]:
        """Yields the entries of a package's file, and stores the file's content if a script reads the file."""
        package.note(file.path, file.data if file.kind == "f" else None)
        if file.kind == "f":
            library = self.read_library(file.data) if _LIBRARY.fullmatch(posixpath.basename(file.path)) else None
            if library:
                self._libraries[resolve(self.image.nodes, file.path)] = _Library(*library)
            if file.path.startswith(_KEPT) or file.path in self.sources:
                self._contents[file.path] = file.data
        if file.path in self._diverted:
            raise NeedsAptError(f"{file.path} of the package {package.name} is diverted in the base")
        yield from self.image.place(package.name, file)

    def apply(self, effects: tuple[Effect, ...]) -> Iterator[Entry]:
        """Yields the entries that the packages' scripts would leave behind."""
        for effect in effects:
            match effect.kind:
                case EffectKind.ALTERNATIVE | EffectKind.LDCONFIG:
                    continue
                case EffectKind.CERTIFICATES:
                    yield from self._make_certificates()
                case EffectKind.APPEND:
                    text = self.image.system.texts.get(effect.path, b"") + effect.text.encode()
                    yield from self.image.write(effect.path, text)
                case _:
                    yield from make_effect(effect, self.image, self._contents)
        yield from make_alternatives((row for row in effects if row.kind is EffectKind.ALTERNATIVE), self.image)
        if any(effect.kind is EffectKind.LDCONFIG for effect in effects):
            yield from self._make_loader_cache()

    def check_libraries(self, sonames: tuple[str, ...], library_path: str) -> None:
        """Raises NeedsAptError unless the loader finds each library."""
        if not sonames:
            return
        cached = {row.soname for row in read_cache(self._cache).libraries}
        folders = [folder for folder in library_path.split(":") if folder.startswith("/")]
        for soname in sonames:
            paths = (resolve(self.image.nodes, f"{folder}/{soname}") for folder in folders)
            if soname not in cached and not any(path in self.image.nodes for path in paths):
                raise NeedsAptError(f"the loader does not find {soname} in the base or in the packages")

    def _make_certificates(self) -> Iterator[Entry]:
        """Yields the entries that update-ca-certificates makes at a first installation."""
        shipped = {path: data for path, data in self._contents.items() if path.startswith(certificates.SHIPPED)}
        folders = (f"{certificates.FOLDER}/", "/usr/local/share/ca-certificates/", certificates.CONFIGURATION)
        conflict = next((path for path in self.image.system.nodes if path.startswith(folders)), None)
        if conflict:
            raise NeedsAptError(f"the base has {conflict}, which update-ca-certificates would change")
        yield from self.image.write(certificates.CONFIGURATION, certificates.make_configuration(shipped))
        for path, target in certificates.make_links(shipped):
            yield from self.image.make_link(path, target)
        yield from self.image.write(f"{certificates.FOLDER}/ca-certificates.crt", certificates.make_bundle(shipped))

    def _make_loader_cache(self) -> Iterator[Entry]:
        """Yields the loader's cache with the packages' libraries, and the links to these libraries."""
        nodes, cache = self.image.nodes, read_cache(self._cache)
        folders: dict[str, str] = {}
        for folder in list_folders(self._read_loader_configuration()):
            folders.setdefault(resolve(nodes, f"{folder}/."), folder)
        rows: dict[CachedLibrary, None] = dict.fromkeys(cache.libraries)
        links: dict[str, str] = {}
        for path, library in sorted(self._find_libraries(list_base_libraries(cache, nodes), frozenset(folders))):
            real, name = posixpath.split(path)
            if "/glibc-hwcaps/" in path:
                raise NeedsAptError(f"{path}: imgtool does not know libraries for hardware capabilities")
            if real not in folders:
                continue
            if library.machine not in FLAGS:
                raise NeedsAptError(f"{path}: the library is for another machine")
            soname = library.soname or name
            rows[CachedLibrary(soname, f"{folders[real]}/{soname}", FLAGS[library.machine])] = None
            if f"{real}/{soname}" not in nodes:
                links.setdefault(f"{real}/{soname}", name)
        for path, target in links.items():
            yield from self.image.make_link(path, target)
        self._cache = write_cache(LoaderCache(tuple(rows), cache.generator))
        yield from self.image.write(_CACHE, self._cache)

    def _read_loader_configuration(self) -> dict[str, str]:
        system = self.image.system
        own = {path: system.text(path) for path in system.texts if path.startswith(_LOADER_CONF)}
        return own | {path: data.decode() for path, data in self._contents.items() if path.startswith(_LOADER_CONF)}

    def _find_libraries(
        self, of_base: Mapping[str, _Library], folders: frozenset[str]
    ) -> Iterator[tuple[str, _Library]]:
        """Yields the packages' libraries and the links to them, each with the name that ldconfig gives it."""
        yield from self._libraries.items()
        for path, node in self.image.placed.items():
            above, name = posixpath.split(path)
            if node.kind != "l" or not _LIBRARY.fullmatch(name):
                continue
            target = resolve(self.image.nodes, f"{path}/.")
            library = self._libraries.get(target) or of_base.get(target)
            if library:
                yield path, _Library(name_link(name, library.soname), library.machine)
            elif target in self.image.system.nodes and above in folders:
                raise NeedsAptError(f"the link {path} points to a file of the base, which may be a library")


def list_base_libraries(cache: LoaderCache, nodes: Mapping[str, Node]) -> dict[str, _Library]:
    """Returns the base's shared libraries, each under its path.

    Of several names of a library in the loader cache, the longest is its soname.
    """
    machines = {flags: machine for machine, flags in FLAGS.items()}
    libraries: dict[str, _Library] = {}
    for row in sorted(cache.libraries, key=lambda row: len(row.soname)):
        if row.flags in machines:
            libraries[resolve(nodes, f"{row.path}/.")] = _Library(row.soname, machines[row.flags])
    return libraries


def name_link(link: str, soname: str) -> str:
    """Returns the name that ldconfig gives a library that it finds through a link.

    ldconfig uses the link's name if that name ends with `.so` and the soname begins with it, or if the library has no
    soname. Otherwise ldconfig uses the soname (glibc, elf/ldconfig.c).
    """
    return link if link.endswith(".so") and soname.startswith(link) else soname or link


def _clean(system: BaseSystem) -> Iterator[Entry]:
    """Yields whiteouts that delete the caches and logs that installations in the base left behind."""
    for path in sorted(system.nodes):
        if posixpath.dirname(path) in _EMPTIED or path in _REMOVED:
            above, name = posixpath.split(path.lstrip("/"))
            yield Entry(f"{above}/.wh.{name}", Node("w"))


def _list_effects(package: InstalledPackage) -> Iterator[Effect]:
    for name in AT_INSTALL:
        if name in package.control:
            yield from find_script_effects(package.name, name, package.control[name])
