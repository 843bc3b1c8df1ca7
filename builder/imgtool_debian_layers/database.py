"""Writes dpkg's and apt's records of an installation: status, `info/`, triggers, automatically installed packages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imgtool_debian_layers.base_system import BaseSystem
from imgtool_debian_layers.errors import DamagedError, NeedsAptError
from imgtool_debian_layers.package_file import Package, read_control

DPKG = "/var/lib/dpkg"
STATUS = f"{DPKG}/status"
EXTENDED_STATES = "/var/lib/apt/extended_states"
_INSTALLED = "install ok installed"
_EXECUTABLE = frozenset({"preinst", "postinst", "prerm", "postrm", "config"})
_INTEREST = {"interest": "", "interest-await": "", "interest-noawait": "/noawait"}
_ACTIVATE = frozenset({"activate", "activate-await", "activate-noawait"})
Stanza = dict[str, str]
"""Fields by name, spelled as in the file; a value keeps its line breaks and the space that begins each further line."""
# The order of dpkg's `fieldinfos` (lib/dpkg/parse.c). All other fields follow in the package's own order.
_ORDER = tuple(
    name
    for line in (
        "Package,Essential,Protected,Status,Priority,Section,Installed-Size,Origin,Maintainer,Bugs,Architecture",
        "Multi-Arch,Source,Version,Config-Version,Replaces,Provides,Depends,Pre-Depends,Recommends,Suggests",
        "Breaks,Conflicts,Enhances,Conffiles,Description,Triggers-Pending,Triggers-Awaited",
    )
    for name in line.split(",")
)
_RANK = {name.lower(): number for number, name in enumerate(_ORDER)}
_NAMES = {name.lower(): name for name in _ORDER}


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package that is being unpacked.

    Attributes:
        name: the package's name.
        architecture: the package's architecture.
        file: the package's file on this machine.
        control: its control files by name.
        stanza: the fields of its `control` file.
        conffiles: the paths of the package's configuration files.
        paths: the package's paths in the order of its archive.
        md5: the MD5 sums of its configuration files, and of all files if the package has no `md5sums`.
    """

    name: str
    architecture: str
    file: Path
    control: Mapping[str, bytes]
    stanza: Stanza
    conffiles: tuple[str, ...]
    paths: list[str] = field(default_factory=list)
    md5: dict[str, str] = field(default_factory=dict)

    @property
    def info_name(self) -> str:
        """The package's name in `info/`, with the architecture if dpkg allows the package for several architectures."""
        both = self.stanza.get("Multi-Arch") == "same"
        return f"{self.name}:{self.architecture}" if both else self.name

    def note(self, path: str, data: bytes | None) -> None:
        """Records an unpacked path, and the MD5 sum of a file's content if dpkg records that sum."""
        self.paths.append(path if path != "/" else "/.")
        if data is not None and (path in self.conffiles or "md5sums" not in self.control):
            self.md5[path] = hashlib.md5(data, usedforsecurity=False).hexdigest()


def open_package(package: Package, file: Path) -> InstalledPackage:
    """Reads the control files of a package.

    Raises DamagedError if `file` is another package, NeedsAptError if a configuration file has a flag of dpkg.
    """
    control = read_control(file)
    stanza = next(parse_stanzas(control.get("control", b"").decode("utf-8", "surrogateescape")), {})
    names = (package.name, package.version, package.architecture)
    if tuple(stanza.get(name) for name in ("Package", "Version", "Architecture")) != names:
        raise DamagedError(f"{package.file}: not {' '.join(names)}")
    conffiles = tuple(filter(None, map(str.strip, control.get("conffiles", b"").decode().split("\n"))))
    if not all(name.startswith("/") for name in conffiles):
        raise NeedsAptError(f"the package {package.name} has flags in its conffiles, which imgtool does not know")
    return InstalledPackage(package.name, package.architecture, file, control, stanza, conffiles)


def cut_name(requested: str) -> str:
    """Returns NAME of `NAME[:ARCHITECTURE][=VERSION]`."""
    return requested.partition("=")[0].partition(":")[0]


def read_installed(system: BaseSystem) -> dict[tuple[str, str], Stanza]:
    """Reads the packages of a base; maps name and architecture to the package's fields.

    Raises NeedsAptError for a package that is not fully installed, DamagedError for a damaged database.
    """
    stanzas = {}
    for stanza in parse_stanzas(system.text(STATUS)):
        name = stanza.get("Package", "")
        if stanza.get("Status", "").split()[1:] != ["ok", "installed"]:
            raise NeedsAptError(f"the package {name} of the base is in the state {stanza.get('Status')!r}")
        stanzas[name, stanza.get("Architecture", "")] = stanza
    if not stanzas:
        raise NeedsAptError("the base has no dpkg database")
    return stanzas


def make_database_files(system: BaseSystem, installed: Iterable[InstalledPackage]) -> Iterator[tuple[str, int, bytes]]:
    """Yields the files of dpkg's database as path, mode and content."""
    stanzas = read_installed(system)
    for package in installed:
        yield from _make_info_files(package)
        stanza = {**package.stanza, "Status": _INSTALLED}
        lines = [f" {path} {package.md5[path]}" for path in package.conffiles if path in package.md5]
        if lines:
            stanza["Conffiles"] = "\n" + "\n".join(lines)
        stanzas[package.name, package.architecture] = stanza
    yield STATUS, 0o644, format_status(stanzas)


def mark_automatic(
    system: BaseSystem, installed: Iterable[InstalledPackage], requested: tuple[str, ...], architecture: str
) -> bytes:
    """Formats apt's extended_states, which lists the packages that apt installed automatically, whatever their section.

    As apt 2.4 to 2.8 does (pkgDepCache::writeStateFile), this drops packages that are now requested or missing.
    """
    names = [package.name for package in installed]
    wanted = set(map(cut_name, requested))
    automatic = {*names, *(name for name, _ in read_installed(system))} - wanted
    stanzas: list[Mapping[str, str]] = [
        stanza
        for stanza in parse_stanzas(system.text(EXTENDED_STATES))
        if stanza.get("Auto-Installed") == "1" and stanza.get("Package") in automatic
    ]
    stanzas += [
        {"Package": name, "Architecture": architecture, "Auto-Installed": "1"} for name in names if name not in wanted
    ]
    return "".join(map(format_stanza, stanzas)).encode()


def make_trigger_files(system: BaseSystem, installed: Iterable[InstalledPackage]) -> Iterator[tuple[str, int, bytes]]:
    """Yields the files of `triggers/` to which the packages add a line."""
    texts: dict[str, str] = {}
    for package in installed:
        for directive, trigger in _read_directives(package):
            if directive in _INTEREST:
                by_file = trigger.startswith("/")
                path = f"{DPKG}/triggers/{'File' if by_file else trigger}"
                line = f"{trigger} {package.info_name}" if by_file else package.info_name
                texts[path] = texts.get(path, system.text(path)) + f"{line}{_INTEREST[directive]}\n"
    for path, text in sorted(texts.items()):
        yield path, 0o644, text.encode()


def find_activated_triggers(system: BaseSystem, installed: Iterable[InstalledPackage]) -> Iterator[tuple[str, str]]:
    """Yields the triggers that dpkg would process, as (package, trigger). A name or a path activates a trigger."""
    packages = tuple(installed)
    directives = [
        (package.name, directive, name) for package in packages for directive, name in _read_directives(package)
    ]
    activated = {name for _, directive, name in directives if directive in _ACTIVATE}
    interests = [*_read_base_interests(system)]
    interests += [(owner, name) for owner, directive, name in directives if directive in _INTEREST]
    for owner, trigger in dict.fromkeys(interests):
        others = (path for package in packages if package.name != owner for path in package.paths)
        if trigger in activated or (
            trigger.startswith("/") and any(f"{path}/".startswith(f"{trigger}/") for path in others)
        ):
            yield owner, trigger


def _read_base_interests(system: BaseSystem) -> Iterator[tuple[str, str]]:
    for path in system.below(f"{DPKG}/triggers"):
        name = path.rpartition("/")[2]
        for line in system.text(path).split("\n"):
            words = line.split()
            if name == "File" and len(words) == 2:
                yield words[1].partition("/")[0].partition(":")[0], words[0]
            elif name not in {"File", "Lock", "Unincorp"} and len(words) == 1:
                yield words[0].partition("/")[0].partition(":")[0], name


def _read_directives(package: InstalledPackage) -> Iterator[tuple[str, str]]:
    for line in package.control.get("triggers", b"").decode().split("\n"):
        words = line.partition("#")[0].split()
        if words:
            if len(words) != 2 or words[0] not in {*_INTEREST, *_ACTIVATE}:
                raise NeedsAptError(
                    f"the package {package.name} has the trigger directive {line!r}, which imgtool does not know"
                )
            yield words[0], words[1]


def _make_info_files(package: InstalledPackage) -> Iterator[tuple[str, int, bytes]]:
    folder = f"{DPKG}/info/{package.info_name}"
    for name, data in sorted(package.control.items()):
        if name != "control":
            yield f"{folder}.{name}", 0o755 if name in _EXECUTABLE else 0o644, data
    yield f"{folder}.list", 0o644, "".join(f"{path}\n" for path in package.paths).encode("utf-8", "surrogateescape")
    if "md5sums" not in package.control:
        lines = (f"{digest}  {path.lstrip('/')}\n" for path, digest in package.md5.items())
        yield f"{folder}.md5sums", 0o644, "".join(lines).encode("utf-8", "surrogateescape")


def parse_stanzas(text: str) -> Iterator[Stanza]:
    """Yields the stanzas of a control file; raises DamagedError for a line that belongs to no stanza."""
    stanza: Stanza = {}
    name = ""
    for line in text.split("\n"):
        if not line.strip():
            if stanza:
                yield stanza
            stanza, name = {}, ""
        elif line[0] in " \t":
            if not name:
                raise DamagedError(f"not Debian control data: {line[:60]!r}")
            stanza[name] += f"\n{line}"
        elif not line.startswith("#"):
            key, colon, value = line.partition(":")
            name = _NAMES.get(key.lower(), key)
            if not colon or not key.strip() or name in stanza:
                raise DamagedError(f"not Debian control data: {line[:60]!r}")
            stanza[name] = value.lstrip()
    if stanza:
        yield stanza


def format_stanza(stanza: Mapping[str, str]) -> str:
    """Formats a stanza as dpkg writes it into its status file, with a blank line at the end."""
    names = sorted(stanza, key=lambda name: _RANK.get(name.lower(), len(_ORDER)))  # the sort is stable
    lines = (f"{name}:{'' if stanza[name].startswith(chr(10)) else ' '}{stanza[name]}\n" for name in names)
    return "".join((*lines, "\n"))


def format_status(stanzas: Mapping[tuple[str, str], Mapping[str, str]]) -> bytes:
    """Formats /var/lib/dpkg/status, with the packages sorted by name and architecture, as dpkg does."""
    return "".join(format_stanza(stanzas[key]) for key in sorted(stanzas)).encode()
