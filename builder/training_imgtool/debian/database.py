"""The records of dpkg and apt after an installation: status, `info/`, triggers, what apt chose itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from training_imgtool.core.errors import NeedsEngineError, VerificationError
from training_imgtool.debian.base_system import BaseSystem
from training_imgtool.debian.formats.control import Stanza, parse_stanzas, status_text
from training_imgtool.plan import DebianPackage

DPKG = "/var/lib/dpkg"
STATUS = f"{DPKG}/status"
EXTENDED_STATES = "/var/lib/apt/extended_states"
_INSTALLED = "install ok installed"
_EXECUTABLE = frozenset({"preinst", "postinst", "prerm", "postrm", "config"})
_INTEREST = {"interest": "", "interest-await": "", "interest-noawait": "/noawait"}
_ACTIVATE = frozenset({"activate", "activate-await", "activate-noawait"})


@dataclass(slots=True)
class Installed:
    """A package that was unpacked: its control data, and its paths in the order of its archive.

    `md5` has the sums of its configuration files, and of all files where the package brings no sums.
    """

    package: DebianPackage
    control: Mapping[str, bytes]
    conffiles: tuple[str, ...] = ()
    paths: list[str] = field(default_factory=list)
    md5: dict[str, str] = field(default_factory=dict)

    @property
    def stanza(self) -> Stanza:
        """The package's own control data; raises VerificationError when it is not what the lock names."""
        stanza = next(parse_stanzas(self.control.get("control", b"").decode("utf-8", "surrogateescape")), {})
        package = self.package
        if [stanza.get(name) for name in ("Package", "Version", "Architecture")] != [
            package.name,
            package.version,
            package.architecture,
        ]:
            raise VerificationError(f"{package.file}: not {package.name} {package.version} {package.architecture}")
        return stanza

    @property
    def info_name(self) -> str:
        """The package's name in `info/`, with the architecture where several may be installed side by side."""
        both = self.stanza.get("Multi-Arch") == "same"
        return f"{self.package.name}:{self.package.architecture}" if both else self.package.name

    def __post_init__(self) -> None:
        self.conffiles = self._read_conffiles()

    def _read_conffiles(self) -> tuple[str, ...]:
        """The package's configuration files; raises NeedsEngineError for a flag that dpkg gives one."""
        lines = self.control.get("conffiles", b"").decode().split("\n")
        names = tuple(line.strip() for line in lines if line.strip())
        if any(not name.startswith("/") for name in names):
            raise NeedsEngineError(f"the package {self.package.name} has flags in its conffiles")
        return names


def installed_stanzas(system: BaseSystem) -> dict[tuple[str, str], Stanza]:
    """The packages of a base by name and architecture.

    Raises NeedsEngineError for one that is not wholly installed, VerificationError for a damaged database.
    """
    stanzas = {}
    for stanza in parse_stanzas(system.text(STATUS)):
        name = stanza.get("Package", "")
        if stanza.get("Status", "").split()[1:] != ["ok", "installed"]:
            raise NeedsEngineError(f"the package {name} of the base is in the state {stanza.get('Status')!r}")
        stanzas[name, stanza.get("Architecture", "")] = stanza
    if not stanzas:
        raise NeedsEngineError("the base has no dpkg database")
    return stanzas


def database_files(
    system: BaseSystem, installed: Iterable[Installed], requested: tuple[str, ...], architecture: str
) -> Iterator[tuple[str, int, bytes]]:
    """The files of the databases as path, mode and content."""
    stanzas = installed_stanzas(system)
    automatic = []
    for one in installed:
        yield from _info_files(one)
        stanza = {**one.stanza, "Status": _INSTALLED}
        lines = [f" {path} {one.md5[path]}" for path in one.conffiles if path in one.md5]
        if lines:
            stanza["Conffiles"] = "\n" + "\n".join(lines)
        stanzas[one.package.name, one.package.architecture] = stanza
        if one.package.name not in {name.partition("=")[0] for name in requested}:
            automatic.append(one.package.name)
    yield STATUS, 0o644, status_text(stanzas)
    states = "".join(f"Package: {name}\nArchitecture: {architecture}\nAuto-Installed: 1\n\n" for name in automatic)
    if states:
        yield EXTENDED_STATES, 0o644, (system.text(EXTENDED_STATES) + states).encode()


def trigger_files(system: BaseSystem, installed: Iterable[Installed]) -> Iterator[tuple[str, int, bytes]]:
    """The files of `triggers/` that gain a line."""
    texts: dict[str, str] = {}
    for one in installed:
        for directive, trigger in _directives(one):
            if directive in _INTEREST:
                by_file = trigger.startswith("/")
                path = f"{DPKG}/triggers/{'File' if by_file else trigger}"
                line = f"{trigger} {one.info_name}" if by_file else one.info_name
                texts[path] = texts.get(path, system.text(path)) + f"{line}{_INTEREST[directive]}\n"
    for path, text in sorted(texts.items()):
        yield path, 0o644, text.encode()


def activated_triggers(system: BaseSystem, installed: Iterable[Installed]) -> Iterator[tuple[str, str]]:
    """The triggers that dpkg would process, as package and trigger: activated by name, or by a path below theirs."""
    every = tuple(installed)
    interests = [*_interests_of_base(system)]
    interests += [
        (one.package.name, name) for one in every for directive, name in _directives(one) if directive in _INTEREST
    ]
    named = {name for one in every for directive, name in _directives(one) if directive in _ACTIVATE}
    for package, trigger in dict.fromkeys(interests):
        others = (path for one in every if one.package.name != package for path in one.paths)
        if trigger in named or (
            trigger.startswith("/") and any(f"{path}/".startswith(f"{trigger}/") for path in others)
        ):
            yield package, trigger


def _interests_of_base(system: BaseSystem) -> Iterator[tuple[str, str]]:
    for path in system.below(f"{DPKG}/triggers"):
        name = path.rpartition("/")[2]
        for line in system.text(path).split("\n"):
            words = line.split()
            if name == "File" and len(words) == 2:
                yield words[1].partition("/")[0].partition(":")[0], words[0]
            elif name not in {"File", "Lock", "Unincorp"} and len(words) == 1:
                yield words[0].partition("/")[0].partition(":")[0], name


def _directives(one: Installed) -> Iterator[tuple[str, str]]:
    for line in one.control.get("triggers", b"").decode().split("\n"):
        words = line.partition("#")[0].split()
        if words:
            if len(words) != 2 or words[0] not in {*_INTEREST, *_ACTIVATE}:
                raise NeedsEngineError(f"the package {one.package.name} has the trigger directive {line!r}")
            yield words[0], words[1]


def _info_files(one: Installed) -> Iterator[tuple[str, int, bytes]]:
    folder = f"{DPKG}/info/{one.info_name}"
    for name, data in sorted(one.control.items()):
        if name != "control":
            yield f"{folder}.{name}", 0o755 if name in _EXECUTABLE else 0o644, data
    yield f"{folder}.list", 0o644, "".join(f"{path}\n" for path in one.paths).encode("utf-8", "surrogateescape")
    if "md5sums" not in one.control:
        lines = (f"{digest}  {path.lstrip('/')}\n" for path, digest in one.md5.items())
        yield f"{folder}.md5sums", 0o644, "".join(lines).encode("utf-8", "surrogateescape")


def md5(data: bytes) -> str:
    """What dpkg compares configuration files by."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
