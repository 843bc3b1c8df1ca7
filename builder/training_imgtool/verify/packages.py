"""The packages in an image's environment, out of their metadata, and what `pip check` would say.

Metadata is the core metadata specification's, requirements are PEP 508's. pip itself is not in the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser

from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from training_imgtool.verify.facts import Tree

_LEGACY = (InvalidRequirement, InvalidMarker, UndefinedComparison, UndefinedEnvironmentName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One package. `site` is the site-packages that it lies in, relative to the root."""

    name: str  # canonical
    version: str
    requires: tuple[str, ...]
    site: str


def find_installed(tree: Tree) -> tuple[Installed, ...]:
    """Finds every package whose metadata is in the tree, by name."""
    packages = []
    for item in tree.of("metadata"):
        headers = Parser().parsestr(item.get("text", ""), headersonly=True)
        site, _, rest = item["path"].partition("/site-packages/")
        name = headers.get("Name") or rest.partition("-")[0]
        packages.append(
            Installed(
                name=canonicalize_name(str(name).strip()),
                version=str(headers.get("Version") or "").strip(),
                requires=tuple(str(text) for text in headers.get_all("Requires-Dist") or []),
                site=f"{site}/site-packages",
            )
        )
    return tuple(sorted(packages, key=lambda text: (text.name, text.version)))


def is_same_version(version: str, other: str) -> bool:
    """Returns whether two versions are one to pip: 1.0 and 1.0.0, 2.1-rc1 and 2.1rc1."""
    try:
        return Version(version) == Version(other)
    except InvalidVersion:
        return version == other


def find_broken(
    present: tuple[Installed, ...], markers: Mapping[str, str], *, provided: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields what `pip check` complains about: requirements that are missing, or there in another version.

    As pip does, it evaluates no extras, takes pre-releases, and passes over what it cannot read.

    Args:
        present: the packages.
        markers: the environment for PEP 508 markers.
        provided: packages that another one stands for, such as `tensorflow` by `tensorflow-cpu`.
    """
    versions = {package.name: package.version for package in present}
    for name, provider in (provided or {}).items():
        if name not in versions and canonicalize_name(provider) in versions:
            versions[name] = versions[canonicalize_name(provider)]
    environment = {**markers, "extra": ""}
    for package in present:
        for text in package.requires:
            try:
                requirement = Requirement(text)
                applies = requirement.marker is None or requirement.marker.evaluate(environment)
            except _LEGACY:
                continue
            version = versions.get(canonicalize_name(requirement.name))
            if not applies:
                continue
            if version is None:
                yield f"{package.name} {package.version} requires {requirement.name}, which is not there"
            elif not _satisfies(requirement, version):
                requirement_text = f"{requirement.name}{requirement.specifier}"
                yield f"{package.name} {package.version} requires {requirement_text}, but {version} is there"


def _satisfies(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
