"""Resolves Debian packages with the machine's apt, against a base's own database and sources, in a private folder.

apt reads nothing of this machine's configuration and changes nothing on it: `APT_CONFIG` names a file that points
every folder of apt (apt.conf(5), "Directories") to the private one. Proxies come from the environment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.errors import InputError, LocalFileError, NeedsEngineError, TemporaryError
from training_imgtool.core.settings import Settings
from training_imgtool.debian.archives import make_private_sources
from training_imgtool.debian.base_system import BaseSystem
from training_imgtool.debian.database import cut_name, parse_stanzas, read_installed
from training_imgtool.plan import DebianPackage

_SECONDS = 600.0  # for one run of apt, downloads of indexes included
_CONFIG = """\
Dir "{root}/";
Dir::Etc "{root}/etc/apt/";
Dir::State "{root}/state/";
Dir::State::status "{root}/status";
Dir::State::extended_states "{root}/extended_states";
Dir::Cache "{root}/cache/";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
"""
_ACTION = re.compile(
    r"(?P<verb>Inst|Remv) (?P<name>\S+?)(?::\w+)?(?: \[(?P<old>[^\]]+)\])? ?(?:\((?P<new>\S+) .*|\[.*)?"
)
_FOLDER, _FILE = "/etc/apt/apt.conf.d", "/etc/apt/apt.conf"
_NAME = re.compile(r"[\w-][\w.-]*")  # apt reads files without an ending, and those that end in .conf
_OPTION = re.compile(r'(?P<name>\S+) "(?P<value>.*)";')
_DATES = re.compile(r"(?i)Acquire::(?:Check-Date|Check-Valid-Until|(?:Max|Min)-ValidTime)(?:::.*)?")
_HARMLESS = re.compile(
    r"(?i)Acquire::.*|Dir::Cache.*|Unattended-Upgrade::.*|APT::(?:Archives|AutoRemove|Changelogs|Color|Install-Recommends"
    r"|Move-Autobit-Sections|NeverAutoRemove|Never-MarkAuto-Sections|Periodic|VersionedKernelPackages)(?:::.*)?|APT|DPkg"
)
_FALSE = frozenset({"", "0", "no", "false", "without", "off", "disable"})  # strutl.cc, StringToBool
_HOOK = re.compile(r"(?i)(?:DPkg|APT::Update)::(?:Pre-Install-Pkgs|Pre-Invoke|Post-Invoke)(?:-Success)?(?:::.*)?")
_EMPTY_CACHE = r"rm -f(?: /var/cache/apt/(?:archives/(?:partial/)?)?\*\.(?:deb|bin))+"
_HOOKS_WITHOUT_EFFECT = re.compile(rf"(?:/usr/sbin/dpkg-preconfigure --apt|{_EMPTY_CACHE}) \|\| true|")


@dataclass(frozen=True, slots=True)
class Resolution:
    """What apt would install, in its order, and which packages it would replace by a newer version."""

    packages: tuple[DebianPackage, ...]
    upgraded: tuple[str, ...] = ()


def resolve_packages(
    system: BaseSystem, requested: tuple[str, ...], architecture: str, settings: Settings
) -> Resolution:
    """Resolves what `apt-get install --no-install-recommends` would install on a base.

    Args:
        system: the base.
        requested: packages as apt takes them, `NAME` or `NAME=VERSION`.
        architecture: Debian's name, such as `amd64`.
        settings: the machine's: proxies, and mirrors of archives.

    Raises:
        NeedsEngineError: this machine has no apt, or apt would remove a package.
        InputError: apt finds no solution; `details` has its last lines.
        TemporaryError: an archive does not answer.
    """
    program = shutil.which("apt-get", path=settings.environ.get("PATH"))
    if program is None:
        raise NeedsEngineError(
            "this machine has no apt-get, which finds the Debian packages",
            hint="install apt (it runs on any Linux), or lock on a Debian or Ubuntu machine",
        )
    if system.text("/var/lib/dpkg/arch").split()[1:]:
        raise NeedsEngineError("the base has packages of a foreign architecture")
    with tempfile.TemporaryDirectory(prefix="imgtool-apt-") as folder:
        root = Path(folder)
        apt = _Apt(root, settings.environ)
        _write(root, system, architecture, settings)
        dates = find_date_options(system, apt.dump_configuration)
        (root / "apt.conf").write_text(_CONFIG.format(root=root, architecture=architecture) + dates)
        apt.update()
        actions = tuple(_parse_actions(apt.run("install", "--simulate", "--yes", *requested)))
        _require_real_names(requested, actions, system)
        removed = [action["name"] for action in actions if action["verb"] == "Remv"]
        if removed:
            raise NeedsEngineError(f"apt would remove {', '.join(removed)}")
        releases = [f"{action['name']}={action['new']}" for action in actions]
        records = _parse_records(apt.run("show", *releases, program="apt-cache")) if releases else {}
    packages = tuple(_lock_package(action, records, architecture) for action in actions)
    return Resolution(packages, tuple(action["name"] for action in actions if action["old"]))


class _Apt:
    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = {**environ, "APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def update(self) -> None:
        """Reads the archives' indexes."""
        result = self._call("apt-get", "update", "--quiet=2")
        if result.returncode:
            lines = _cut_last_lines(result.stderr)
            raise TemporaryError(
                f"the base's package archives: {lines[0] if lines else 'no answer'}",
                hint="IMGTOOL_DEBIAN_MIRRORS names mirrors of archives, HTTP_PROXY a proxy",
                details=lines[1:],
            )

    def dump_configuration(self, text: str) -> str:
        """Prints all options as `NAME "VALUE";` lines, with those of a configuration."""
        path = self._root / "base.conf"
        path.write_text(text, errors="surrogateescape")
        return self.run("dump", f"--config-file={path}", program="apt-config")

    def run(self, *arguments: str, program: str = "apt-get") -> str:
        """Runs a command and returns its output; raises InputError when it fails."""
        result = self._call(program, *arguments)
        if result.returncode:
            lines = _cut_last_lines(result.stderr) or _cut_last_lines(result.stdout)
            raise InputError(
                f"apt: {lines[0] if lines else 'no explanation'}",
                hint="system_packages takes names of packages that the base's own archives have",
                details=lines[1:],
            )
        return result.stdout

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [program, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TemporaryError(f"{program} did not end within {_SECONDS:.0f} s") from error
        except OSError as error:
            raise LocalFileError(f"{program}: cannot be run: {error.strerror}") from error


def _write(root: Path, system: BaseSystem, architecture: str, settings: Settings) -> None:
    """Lays out the private folder: the base's database, sources, preferences and keys."""
    files = dict(make_private_sources(system, settings, root))
    files["status"] = system.texts.get("/var/lib/dpkg/status", b"")
    files["extended_states"] = system.texts.get("/var/lib/apt/extended_states", b"")
    files["apt.conf"] = _CONFIG.format(root=root, architecture=architecture).encode()
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/apt/preferences.d", "etc/apt/apt.conf.d"):
        (root / folder).mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def _require_real_names(requested: tuple[str, ...], actions: tuple[dict[str, str], ...], system: BaseSystem) -> None:
    """Raises NeedsEngineError for a name that stands for others: imgtool would not know which package was wanted."""
    present = {name for name, _ in read_installed(system)} | {action["name"] for action in actions}
    for text in requested:
        if cut_name(text) not in present:
            raise NeedsEngineError(f"{text} is the name of no package, but stands for one or several")


def _parse_actions(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        match = _ACTION.fullmatch(line)
        if match:
            yield {name: value or "" for name, value in match.groupdict().items()}


def _parse_records(text: str) -> dict[tuple[str, str], dict[str, str]]:
    records: dict[tuple[str, str], dict[str, str]] = {}
    for stanza in parse_stanzas(text):
        records.setdefault((stanza["Package"], stanza["Version"]), stanza)
    return records


def _lock_package(
    action: Mapping[str, str], records: Mapping[tuple[str, str], Mapping[str, str]], architecture: str
) -> DebianPackage:
    record = records.get((action["name"], action["new"]), {})
    if not {"Filename", "SHA256", "Size"} <= {*record}:
        raise NeedsEngineError(f"the archive's index names no file or sha256 of {action['name']} {action['new']}")
    if record["Architecture"] not in {architecture, "all"}:
        raise NeedsEngineError(f"{action['name']} is of the architecture {record['Architecture']}")
    return DebianPackage(
        name=action["name"],
        version=action["new"],
        architecture=record["Architecture"],
        file=record["Filename"],
        sha256=record["SHA256"],
        size=int(record["Size"]),
    )


def _cut_last_lines(text: str) -> tuple[str, ...]:
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    errors = [line for line in lines if line.startswith(("E:", "W:"))]
    return tuple(line[2:].strip() for line in sorted(errors)[:5])


def find_date_options(system: BaseSystem, dump: Callable[[str], str]) -> str:
    """Collects what a base says about the age of archives' indexes, as apt's configuration.

    Args:
        system: the base.
        dump: gives what `apt-config dump` prints with a configuration.

    Raises NeedsEngineError for another option that may change what apt installs, or runs a program.
    """
    text = "\n".join(_read_texts(system))
    if not text:
        return ""
    usual = set(dump("").splitlines())
    dates = []
    for line in dump(text).splitlines():
        option = _OPTION.fullmatch(line)
        if line in usual or option is None:
            continue
        if _DATES.fullmatch(option["name"]):
            dates.append(f"{line}\n")
        elif not _is_harmless(option["name"], option["value"]):
            raise NeedsEngineError(f"the base's configuration of apt has {option['name'].rstrip(':')}")
    return "".join(dates)


def _is_harmless(name: str, value: str) -> bool:
    if name.lower() == "apt::install-suggests":
        return value.lower() in _FALSE
    if _HOOK.fullmatch(name):
        return bool(_HOOKS_WITHOUT_EFFECT.fullmatch(value))
    return bool(_HARMLESS.fullmatch(name))


def _read_texts(system: BaseSystem) -> Iterator[str]:
    for path in (*system.below(_FOLDER), _FILE):
        name = Path(path).name
        if path == _FILE or (_NAME.fullmatch(name) and ("." not in name or name.endswith(".conf"))):
            yield system.text(path)
