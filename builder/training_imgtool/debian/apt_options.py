"""A base's own configuration of apt: imgtool never follows it, so it must not change what apt would install or do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.debian.base_system import BaseSystem

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


def find_date_options(system: BaseSystem, dump: Callable[[str], str]) -> str:
    """What a base says about the age of archives' indexes, as apt's configuration.

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
