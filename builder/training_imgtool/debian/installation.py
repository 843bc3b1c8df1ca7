"""An installation as the entries of one layer: packages unpacked, known effects, loader cache, databases."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training_imgtool.core.elf import Library, read_library
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.debian import database
from training_imgtool.debian.base_system import BaseSystem, Node, resolve
from training_imgtool.debian.database import InstalledPackage
from training_imgtool.debian.effects import make_alternatives, make_effect, replaced_path
from training_imgtool.debian.formats import certificates
from training_imgtool.debian.formats.loader_cache import (
    FLAGS,
    CachedLibrary,
    LoaderCache,
    list_folders,
    read_cache,
    write_cache,
)
from training_imgtool.debian.formats.package_file import PackedFile, read_control, read_files
from training_imgtool.debian.scripts import AT_INSTALL, Effect, EffectKind, find_script_effects, find_trigger_effects
from training_imgtool.debian.unpack import Unpacking
from training_imgtool.direct.debian_layer import OpenedLibraries
from training_imgtool.direct.layers.tar_writer import Item
from training_imgtool.direct.layers.tarhead import Entry, Kind
from training_imgtool.plan import DebianPackage, LockedDebian

_LIBRARY = re.compile(r"(?:lib.*|ld-.*)\.so(?:\..+)?")
_LOADER_CONF = "/etc/ld.so.conf"
_KEPT = (_LOADER_CONF, certificates.SHIPPED)  # contents that effects read
_CACHE = "/etc/ld.so.cache"
_EMPTIED = ("/var/lib/apt/lists", "/var/log/apt")  # folders that the `system` stage empties
_REMOVED = (
    "/var/cache/apt/pkgcache.bin",
    "/var/cache/apt/srcpkgcache.bin",
    "/var/cache/ldconfig/aux-cache",
    "/var/log/alternatives.log",
    "/var/log/dpkg.log",
)

PackagePath = Callable[[DebianPackage], Path]
"""Where a package's file lies on this machine, verified."""


@dataclass(slots=True)
class Installation:
    """The installation of locked packages on a base. `items` gives its entries once, in their order.

    Attributes:
        system: the base.
        locked: the packages.
        package_path: gives their files.
        architecture: Debian's name of the platform's.
        opened: libraries that must be there at the end.
    """

    system: BaseSystem
    locked: LockedDebian
    package_path: PackagePath
    architecture: str
    opened: OpenedLibraries = field(default_factory=OpenedLibraries)
    _effects: list[Effect] = field(default_factory=list)
    _libraries: dict[str, Library] = field(default_factory=dict)
    _contents: dict[str, bytes] = field(default_factory=dict)  # of files that effects read
    _sources: frozenset[str] = frozenset()
    _diverted: frozenset[str] = frozenset()
    _cache: bytes = b""

    def make_items(self) -> Iterator[Item]:
        """Yields the layer's entries.

        Raises:
            NeedsEngineError: a script, a trigger or a file is not one that imgtool knows the effect of.
            VerificationError: a package is damaged, or not the locked package.
        """
        self._check_base()
        installed = [
            InstalledPackage(package, read_control(self.package_path(package))) for package in self.locked.packages
        ]
        self._effects = [effect for package in installed for effect in _list_effects(package)]
        self._diverted = frozenset(self.system.text("/var/lib/dpkg/diversions").splitlines())
        self._sources = frozenset(effect.target for effect in self._effects if effect.kind is EffectKind.COPY)
        unpacking = Unpacking(self.system, replaced=frozenset(map(replaced_path, self._effects)))
        for package in installed:
            for file in read_files(self.package_path(package.locked)):
                yield from self._unpack(package, file, unpacking)
        for owner, trigger in database.find_activated_triggers(self.system, installed):
            self._effects += find_trigger_effects(owner, trigger)
        yield from self._apply(unpacking)
        self._check_libraries(unpacking)
        yield from self._clean()
        states = database.mark_automatic(self.system, installed, self.locked.requested, self.architecture)
        if states != self.system.texts.get(database.EXTENDED_STATES, b""):
            yield from self._write(unpacking, database.EXTENDED_STATES, 0o644, states)
        if not installed:
            return
        written = database.make_database_files(self.system, installed)
        for path, mode, data in (*written, *database.make_trigger_files(self.system, installed)):
            yield from self._write(unpacking, path, mode, data)

    def _check_base(self) -> None:
        present = database.read_installed(self.system)
        names = {name for name, _ in present}
        upgraded = sorted(package.name for package in self.locked.packages if package.name in names)
        if upgraded:
            raise NeedsEngineError(f"apt replaces {', '.join(upgraded)} of the base by another version")
        if self.system.text("/var/lib/dpkg/statoverride").strip():
            raise NeedsEngineError("the base has a statoverride, which changes what dpkg installs")

    def _unpack(self, package: InstalledPackage, file: PackedFile, unpacking: Unpacking) -> Iterator[Item]:
        package.paths.append(file.path if file.path != "/" else "/.")
        if file.kind == "f":
            if file.path in package.conffiles or "md5sums" not in package.control:
                package.md5[file.path] = database.md5(file.data)
            if _LIBRARY.fullmatch(posixpath.basename(file.path)) and (
                library := read_library(lambda at, size: file.data[at : at + size])
            ):
                self._libraries[resolve(unpacking.nodes, file.path)] = library
            if file.path.startswith(_KEPT) or file.path in self._sources:
                self._contents[file.path] = file.data
        if file.path in self._diverted:
            raise NeedsEngineError(f"{file.path} of the package {package.locked.name} is diverted in the base")
        yield from unpacking.place(package.locked.name, file)

    def _apply(self, unpacking: Unpacking) -> Iterator[Item]:
        effects = tuple(dict.fromkeys(self._effects))
        for effect in effects:
            if effect.kind in {EffectKind.ALTERNATIVE, EffectKind.LDCONFIG}:
                continue
            if effect.kind is EffectKind.CERTIFICATES:
                yield from self._make_certificates(unpacking)
            elif effect.kind is EffectKind.APPEND:
                text = self.system.texts.get(effect.path, b"") + effect.text.encode()
                yield from self._write(unpacking, effect.path, 0o644, text)
            else:
                yield from make_effect(effect, unpacking, self._contents)
        yield from make_alternatives((row for row in effects if row.kind is EffectKind.ALTERNATIVE), unpacking)
        if any(effect.kind is EffectKind.LDCONFIG for effect in effects):
            yield from self._make_loader_cache(unpacking)

    def _make_certificates(self, unpacking: Unpacking) -> Iterator[Item]:
        """Yields what update-ca-certificates makes of a first installation."""
        shipped = {path: data for path, data in self._contents.items() if path.startswith(certificates.SHIPPED)}
        folders = (f"{certificates.FOLDER}/", "/usr/local/share/ca-certificates/", certificates.CONFIGURATION)
        conflict = next((path for path in self.system.nodes if path.startswith(folders)), None)
        if conflict:
            raise NeedsEngineError(f"the base has {conflict}, which update-ca-certificates works on")
        plain = Node("f", 0o644)
        yield from unpacking.make(certificates.CONFIGURATION, plain, certificates.make_configuration(shipped))
        for path, target in certificates.make_links(shipped):
            yield from unpacking.make(path, Node("l", 0o777, target=target))
        bundle = certificates.make_bundle(shipped)
        yield from unpacking.make(f"{certificates.FOLDER}/ca-certificates.crt", plain, bundle)

    def _make_loader_cache(self, unpacking: Unpacking) -> Iterator[Item]:
        """Yields the loader's cache with the libraries that packages brought."""
        cache = read_cache(self.system.texts.get(_CACHE, b""))
        present = {(row.soname, row.path) for row in cache.libraries}
        configuration = {path: self.system.text(path) for path in self.system.texts if path.startswith(_LOADER_CONF)}
        brought = {path: data.decode() for path, data in self._contents.items() if path.startswith(_LOADER_CONF)}
        added: list[CachedLibrary] = []
        links: list[tuple[str, str]] = []
        folders: dict[str, str] = {}
        for folder in list_folders({**configuration, **brought}):
            folders.setdefault(resolve(unpacking.nodes, f"{folder}/."), folder)
        of_base = _list_base_libraries(cache, unpacking)
        for path, library in sorted(self._find_libraries(unpacking, of_base, frozenset(folders))):
            real, name = posixpath.split(path)
            if "/glibc-hwcaps/" in path:
                raise NeedsEngineError(f"{path}: libraries by hardware capabilities")
            if real not in folders:
                continue
            if library.machine not in FLAGS:
                raise NeedsEngineError(f"{path}: a library for another machine")
            soname = library.soname or name
            row = CachedLibrary(soname, f"{folders[real]}/{soname}", FLAGS[library.machine])
            if f"{real}/{soname}" not in unpacking.nodes:
                links.append((f"{real}/{soname}", name))
            if (row.soname, row.path) not in present:
                present.add((row.soname, row.path))
                added.append(row)
        for path, target in links:
            if path not in unpacking.nodes:
                yield from unpacking.make(path, Node("l", 0o777, target=target))
        self._cache = write_cache(LoaderCache((*cache.libraries, *added), cache.generator))
        yield from self._write(unpacking, _CACHE, 0o644, self._cache)

    def _find_libraries(
        self, unpacking: Unpacking, of_base: Mapping[str, Library], folders: frozenset[str]
    ) -> Iterator[tuple[str, Library]]:
        """Yields the libraries that packages brought, and links to such, by the name that ldconfig gives each."""
        yield from self._libraries.items()
        for path, node in unpacking.placed.items():
            above, name = posixpath.split(path)
            if node.kind != "l" or not _LIBRARY.fullmatch(name):
                continue
            target = resolve(unpacking.nodes, f"{path}/.")
            library = self._libraries.get(target) or of_base.get(target)
            if library:
                yield path, _name_link(name, library)
            elif target in self.system.nodes and above in folders:
                raise NeedsEngineError(f"{path}, a link to a file of the base, which may be a library")

    def _check_libraries(self, unpacking: Unpacking) -> None:
        """Raises NeedsEngineError unless the loader finds each library that the stage opens."""
        if not self.opened.sonames:
            return
        cache = read_cache(self._cache or self.system.texts.get(_CACHE, b""))
        cached = {row.soname for row in cache.libraries}
        folders = [folder for folder in self.opened.path.split(":") if folder.startswith("/")]
        for soname in self.opened.sonames:
            paths = (resolve(unpacking.nodes, f"{folder}/{soname}") for folder in folders)
            if soname not in cached and not any(path in unpacking.nodes for path in paths):
                raise NeedsEngineError(f"the loader does not find {soname} in the base or its packages")

    def _write(self, unpacking: Unpacking, path: str, mode: int, data: bytes) -> Iterator[Item]:
        """Yields a file that the base may have already, with its mode and owner."""
        present = self.system.nodes.get(path)
        node = present if present is not None and present.kind == "f" else Node("f", mode)
        yield from unpacking.make(path, node, data)

    def _clean(self) -> Iterator[Item]:
        """Whiteouts for what the stage's last command removes from the base."""
        for path in sorted(self.system.nodes):
            if posixpath.dirname(path) in _EMPTIED or path in _REMOVED:
                above, name = posixpath.split(path.lstrip("/"))
                yield Item(Entry(path=f"{above}/.wh.{name}", kind=Kind.FILE, mode=0o644))


def _list_base_libraries(cache: LoaderCache, unpacking: Unpacking) -> dict[str, Library]:
    """Maps files of the base to its libraries; of several names in its loader cache the longest is the soname."""
    machines = {flags: machine for machine, flags in FLAGS.items()}
    libraries: dict[str, Library] = {}
    for row in sorted(cache.libraries, key=lambda row: len(row.soname)):
        if row.flags in machines:
            libraries[resolve(unpacking.nodes, f"{row.path}/.")] = Library(row.soname, machines[row.flags])
    return libraries


def _name_link(link: str, library: Library) -> Library:
    """Describes a library as ldconfig sees it through a link.

    A link with the soname, or the start of it that ends with .so, counts under its own name (glibc, elf/ldconfig.c).
    """
    soname = library.soname or link
    own = link == soname or (link.endswith(".so") and soname.startswith(link))
    return Library(link if own else soname, library.machine)


def _list_effects(package: InstalledPackage) -> Iterator[Effect]:
    for name in AT_INSTALL:
        if name in package.control:
            yield from find_script_effects(package.locked.name, name, package.control[name])
