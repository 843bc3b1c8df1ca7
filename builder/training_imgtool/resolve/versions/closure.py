"""Checks that packages satisfy one another's requirements, as `pip check` does, and also the requirements of extras.

Metadata follows the core metadata specification, requirements follow PEP 508. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

_LEGACY = (ValueError, UndefinedComparison, UndefinedEnvironmentName)
_LAST_PATCH = 40  # more patch releases than any minor of CPython has had


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The facts about a package from its METADATA; `name` is canonical."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    requires_python: str = ""


def parse_metadata(text: str, name: str = "") -> Package:
    """Parses a METADATA file; uses `name` if the file contains no name."""
    headers = HeaderParser().parsestr(text)
    return Package(
        name=canonicalize_name(str(headers.get("Name") or name).strip()),
        version=str(headers.get("Version") or "").strip(),
        requires=tuple(str(line) for line in headers.get_all("Requires-Dist") or ()),
        requires_python=str(headers.get("Requires-Python") or "").strip(),
    )


def list_readable(package: Package) -> Iterator[str]:
    """Yields a package's requirements, without limits that PEP 440 does not allow, as in `pytz (>=2011k)`."""
    for text in package.requires:
        try:
            yield str(Requirement(text))
        except ValueError:
            head, semicolon, marker = text.partition(";")
            yield f"{re.split(r'[ (<>=!~]', head.strip(), maxsplit=1)[0]}{semicolon}{marker}"


def is_same_version(version: str, other: str) -> bool:
    """Returns whether two versions are equal for pip, such as 1.0 and 1.0.0, or 2.1-rc1 and 2.1rc1."""
    try:
        return Version(version) == Version(other)
    except ValueError:
        return version == other


def find_broken(
    present: Iterable[Package],
    markers: Mapping[str, str],
    *,
    provided: Mapping[str, str] | None = None,
    wanted: Iterable[str] = (),
    own: Collection[str] = (),
) -> Iterator[str]:
    """Yields a text for each requirement that no package satisfies, and each package that excludes the Python.

    Like pip, this check accepts pre-releases, and ignores requirements that it cannot read.

    Args:
        present: the packages.
        markers: the environment for PEP 508 markers.
        provided: packages that another package replaces, such as `tensorflow-cpu` for `tensorflow`.
        wanted: the user's requirements, including their extras.
        own: the project's own packages, whose code is in the image.
    """
    packages = {package.name: package for package in present}
    versions = {package.name: package.version for package in packages.values()}
    for name, provider in (provided or {}).items():
        if name not in versions and canonicalize_name(provider) in versions:
            versions[name] = versions[canonicalize_name(provider)]
    asked = [("the spec", text, "") for text in wanted]
    asked += [
        (f"{package.name} {package.version}", text, "") for package in packages.values() for text in package.requires
    ]
    seen: set[tuple[str, str]] = set()
    while asked:
        owner, text, extra = asked.pop(0)
        requirement = _parse(text, {**markers, "extra": extra})
        if requirement is None:
            continue
        name = canonicalize_name(requirement.name)
        if name in own and name not in versions:
            continue
        if name not in versions:
            yield f"{owner} requires {requirement.name}, which is not there"
        elif not _satisfies(requirement, versions[name]):
            yield f"{owner} requires {requirement.name}{requirement.specifier}, but {versions[name]} is there"
        for other in {(name, extra) for extra in requirement.extras} - seen if name in packages else ():
            seen.add(other)
            package = packages[name]
            title = f"{name}[{other[1]}] {package.version}"
            new = (line for line in package.requires if _parse(line, {**markers, "extra": ""}) is None)
            asked += [(title, line, other[1]) for line in new]
    yield from (
        f"{package.name} {package.version} requires Python {package.requires_python}"
        for package in packages.values()
        if not takes_python(package.requires_python, markers["python_version"])
    )


def _parse(text: str, environment: Mapping[str, str]) -> Requirement | None:
    """Parses a requirement; None if it does not apply in the environment, or cannot be parsed."""
    try:
        requirement = Requirement(text)
        return requirement if requirement.marker is None or requirement.marker.evaluate({**environment}) else None
    except _LEGACY:
        return None


def _satisfies(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except ValueError:
        return False


def takes_python(specifier: str, python: str) -> bool:
    """Returns whether a specifier allows some release of a minor version of Python."""
    try:
        allowed = SpecifierSet(specifier)
        return any(allowed.contains(f"{python}.{patch}") for patch in range(_LAST_PATCH))
    except ValueError:
        return True
