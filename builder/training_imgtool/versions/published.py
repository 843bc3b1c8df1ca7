"""Which releases of a package an index offers, and for which Pythons on Linux. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

_FREE_THREADED = re.compile(r"cp\d+t")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version of a package on the index.

    Attributes:
        pythons: those of its wheels for Linux on x86_64, without yanked wheels unless all are; `pythons_arm` the same
            for aarch64.
        yanked: why all wheels for x86_64 are yanked, if they are.
    """

    pythons: frozenset[str]
    pythons_arm: frozenset[str]
    yanked: str | None


_Wheel = tuple[frozenset[Tag], str | None]  # and why it is yanked


def published_versions(files: Iterable[tuple[str, str | None]]) -> dict[str, Published]:
    """The final releases that have a wheel for Linux on x86_64, by version.

    Args:
        files: the name of each file of a package, and why it is yanked; None for one that is not.
    """
    wheels: dict[str, list[_Wheel]] = {}
    for file, yanked in files:
        try:
            _, version, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            continue  # a source archive, or a name that pip refuses too
        if not version.is_prerelease and version.local is None:
            wheels.setdefault(str(version), []).append((tags, yanked))
    rows = {version: _merge_wheels(of_version) for version, of_version in wheels.items()}
    return {version: row for version, row in rows.items() if row.pythons}


def _merge_wheels(wheels: list[_Wheel]) -> Published:
    """What the wheels of one version say."""
    reasons = [yanked for tags, yanked in wheels if _pythons(tags, "x86_64")]
    all_yanked = None not in reasons
    counted = [tags for tags, yanked in wheels if all_yanked or yanked is None]
    return Published(
        pythons=frozenset().union(*(_pythons(tags, "x86_64") for tags in counted)),
        pythons_arm=frozenset().union(*(_pythons(tags, "aarch64") for tags in counted)),
        yanked=reasons[0] if reasons and all_yanked else None,
    )


def _pythons(tags: frozenset[Tag], machine: str) -> frozenset[str]:
    """The Pythons on Linux with glibc that a wheel is for; a free-threaded Python is another one."""
    return frozenset(
        f"{tag.interpreter[2]}.{tag.interpreter[3:]}"
        for tag in tags
        if tag.interpreter.startswith("cp")
        and not _FREE_THREADED.fullmatch(tag.abi)
        and re.fullmatch(rf"(?:many)?linux\w*_{machine}", tag.platform)
    )
