"""Resolves Debian packages with this machine's apt, for a base's database and sources, in a private folder.

apt neither reads this machine's configuration nor changes this machine, because `APT_CONFIG` names a file that puts all
of apt's folders (apt.conf(5), "Directories") into the private folder. Proxies come from the environment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from imgtool_debian_layers.archives import make_private_sources
from imgtool_debian_layers.base_system import BaseSystem
from imgtool_debian_layers.database import cut_name, parse_stanzas, read_installed
from imgtool_debian_layers.errors import NeedsAptError, NoSolutionError, UnreachableError
from imgtool_debian_layers.package_file import Package

_SECONDS = 600.0  # limit for one run of apt, including its downloads of indexes
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
_ACTION = re.compile(r"(?P<verb>Inst|Remv) (?P<name>\S+?)(?::\w+)?(?: \[[^\]]+\])? ?(?:\((?P<new>\S+) .*|\[.*)?")
_FOLDER, _FILE = "/etc/apt/apt.conf.d", "/etc/apt/apt.conf"
_NAME = re.compile(r"[\w-][\w.-]*")  # apt reads files without an extension, and files that end in .conf
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


def resolve_packages(
    system: BaseSystem,
    requested: tuple[str, ...],
    architecture: str,
    *,
    environ: Mapping[str, str],
    mirrors: Mapping[str, str],
) -> tuple[Package, ...]:
    """Lists the packages that `apt-get install --no-install-recommends` would install on a base, in apt's order.

    Args:
        system: the base.
        requested: packages as apt-get accepts them, `NAME` or `NAME=VERSION`.
        architecture: Debian's name, such as `amd64`.
        environ: apt's environment, with PATH and proxies.
        mirrors: addresses of archives to use instead of those that the base names.

    Raises:
        NeedsAptError: this machine has no apt, or apt would remove a package.
        NoSolutionError: apt finds no solution; `details` has its last lines.
        UnreachableError: an archive does not answer.
    """
    if shutil.which("apt-get", path=environ.get("PATH")) is None:
        raise NeedsAptError("this machine has no apt-get, which imgtool needs to find the Debian packages")
    if system.text("/var/lib/dpkg/arch").split()[1:]:
        raise NeedsAptError("the base has packages of a foreign architecture")
    with tempfile.TemporaryDirectory(prefix="debian-layers-") as folder:
        root = Path(folder)
        apt = _Apt(root, environ)
        _write(root, system, architecture, mirrors)
        dates = find_date_options(system, apt.dump_configuration)
        (root / "apt.conf").write_text(_CONFIG.format(root=root, architecture=architecture) + dates)
        apt.update()
        actions = tuple(_parse_actions(apt.run("install", "--simulate", "--yes", *requested)))
        _require_real_names(requested, actions, system)
        removed = [action["name"] for action in actions if action["verb"] == "Remv"]
        if removed:
            raise NeedsAptError(f"apt would remove {', '.join(removed)}")
        releases = [f"{action['name']}={action['new']}" for action in actions]
        records = _parse_records(apt.run("show", *releases, program="apt-cache")) if releases else {}
    return tuple(_read_package(action, records, architecture) for action in actions)


class _Apt:
    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = {**environ, "APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def update(self) -> None:
        """Downloads the archives' indexes."""
        result = self._call("apt-get", "update", "--quiet=2")
        if result.returncode:
            lines = _cut_last_lines(result.stderr)
            message = f"the base's package archives: {lines[0] if lines else 'no answer'}"
            raise UnreachableError(message, details=lines[1:])

    def dump_configuration(self, text: str) -> str:
        """Returns all options as `NAME "VALUE";` lines, including the options of the configuration `text`."""
        path = self._root / "base.conf"
        path.write_text(text, errors="surrogateescape")
        return self.run("dump", f"--config-file={path}", program="apt-config")

    def run(self, *arguments: str, program: str = "apt-get") -> str:
        """Runs a command and returns the command's output; raises NoSolutionError if the command fails."""
        result = self._call(program, *arguments)
        if result.returncode:
            lines = _cut_last_lines(result.stderr) or _cut_last_lines(result.stdout)
            raise NoSolutionError(f"apt: {lines[0] if lines else 'no explanation'}", details=lines[1:])
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
            raise UnreachableError(f"{program} did not end within {_SECONDS:.0f} s") from error


def _write(root: Path, system: BaseSystem, architecture: str, mirrors: Mapping[str, str]) -> None:
    """Fills the private folder with the base's database, sources, preferences and keys."""
    files = dict(make_private_sources(system, mirrors, root))
    files["status"] = system.texts.get("/var/lib/dpkg/status", b"")
    files["extended_states"] = system.texts.get("/var/lib/apt/extended_states", b"")
    files["apt.conf"] = _CONFIG.format(root=root, architecture=architecture).encode()
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/apt/preferences.d", "etc/apt/apt.conf.d"):
        (root / folder).mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def _require_real_names(requested: tuple[str, ...], actions: tuple[dict[str, str], ...], system: BaseSystem) -> None:
    """Raises NeedsAptError for a virtual package or a pattern, which does not tell which package is wanted."""
    present = {name for name, _ in read_installed(system)} | {action["name"] for action in actions}
    for text in requested:
        if cut_name(text) not in present:
            raise NeedsAptError(f"{text} is not the name of a package, but a virtual package or a pattern")


def _parse_actions(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        match = _ACTION.fullmatch(line)
        if match:
            yield {name: value or "" for name, value in match.groupdict().items()}


def _parse_records(text: str) -> dict[tuple[str, str], dict[str, str]]:
    stanzas = reversed([*parse_stanzas(text)])  # if several archives have the package, apt takes the first one
    return {(stanza["Package"], stanza["Version"]): stanza for stanza in stanzas}


def _read_package(
    action: Mapping[str, str], records: Mapping[tuple[str, str], Mapping[str, str]], architecture: str
) -> Package:
    record = records.get((action["name"], action["new"]), {})
    if not {"Filename", "SHA256", "Size"} <= {*record}:
        raise NeedsAptError(f"the archive's index names no file or no sha256 for {action['name']} {action['new']}")
    if record["Architecture"] not in {architecture, "all"}:
        raise NeedsAptError(f"{action['name']} is for the architecture {record['Architecture']}")
    return Package(
        name=action["name"],
        version=action["new"],
        architecture=record["Architecture"],
        file=record["Filename"],
        sha256=record["SHA256"],
        size=int(record["Size"]),
    )


def _cut_last_lines(text: str) -> tuple[str, ...]:
    errors = [line for line in map(str.strip, text.splitlines()) if line.startswith(("E:", "W:"))]
    return tuple(line[2:].strip() for line in sorted(errors)[:5])


def find_date_options(system: BaseSystem, dump: Callable[[str], str]) -> str:
    """Returns the base's options for the age of archives' indexes, as a configuration of apt.

    Args:
        system: the base.
        dump: returns the output of `apt-config dump` for a configuration.

    Raises NeedsAptError for any other option that may change what apt installs, or that runs a program.
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
            raise NeedsAptError(f"the base's configuration of apt sets {option['name'].rstrip(':')}")
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
