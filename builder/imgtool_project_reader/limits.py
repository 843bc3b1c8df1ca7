"""Finds the releases that still have the names that code uses, and packages that called functions import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from imgtool_project_reader.programs import Reached
from imgtool_project_reader.tables import load_tables

_ENDS = frozenset({"<", "<=", "==", "===", "~="})


def find_limits(used: Iterable[tuple[str, int]]) -> Iterator[tuple[Requirement, int]]:
    """Yields requirements that allow only releases with the names that a file uses, each with the line of the use.

    A method, such as `.ix`, gives a requirement only if the file also uses another name of the method's package.
    """
    table = load_tables()["limits"]
    rows = [*used]
    tops = {name.partition(".")[0] for name, _ in rows}
    for name, line in rows:
        parts = name.split(".")
        owners = tops & table.keys() if name[0] == "." else [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        for owner in owners:
            rest = name if name[0] == "." else name[len(owner) + 1 :]
            for requirement, words in table.get(owner, {}).items():
                if _has(words.split(), rest, is_module=f"{owner}.{rest.partition('.')[0]}" in table):
                    yield Requirement(requirement), line


def _has(words: list[str], rest: str, *, is_module: bool) -> bool:
    """Tells whether a used name matches the words of a table's row; with `is_module`, the name begins with a module."""
    if "*" in words or rest in words:
        return True
    first, _, inner = rest.partition(".")
    is_whole = not (inner and is_module) and first in words
    return bool(first) and (is_whole or any(word.endswith("*") and first.startswith(word[:-1]) for word in words))


def limit_by_code(reached: Reached | None) -> dict[str, tuple[Requirement, str]]:
    """Maps each package that the program's files limit to the strictest requirement, with the place in a file."""
    sources = reached.sources if reached else ()
    chosen: dict[str, tuple[Requirement, str]] = {}
    for source in sources:
        for limit, line in find_limits(source.used):
            name = canonicalize_name(limit.name)
            if name not in chosen or _end(limit) < _end(chosen[name][0]):
                chosen[name] = limit, f"{source.path}:{line}"
    return chosen


def list_called(reached: Reached | None) -> dict[str, str]:
    """Maps packages that called functions import, although no METADATA names the packages, to the place of the call."""
    table = load_tables()["called"]
    found: dict[str, str] = {}
    for source in reached.sources if reached else ():
        for name, line in source.used:
            for package in table.get(name.removeprefix("tensorflow."), "").split():
                found.setdefault(package, f"called in {source.path}:{line}")
    return found


def _end(limit: Requirement) -> Version:
    return min(Version(part.version) for part in limit.specifier)


def has_end(specifier: SpecifierSet) -> bool:
    """Tells whether a specifier has an upper limit."""
    return any(part.operator in _ENDS for part in specifier)


def can_be(specifier: SpecifierSet) -> bool:
    """Tells whether a release can satisfy a specifier: the lowest upper limit is above the highest lower limit."""
    starts = [Version(part.version) for part in specifier if part.operator in {">=", ">"}]
    ends = [Version(part.version) for part in specifier if part.operator == "<"]
    return not (starts and ends) or max(starts) < min(ends)


def find_newest_python(requirement: Requirement) -> str | None:
    """Returns the newest Python with a wheel of the newest release that a requirement allows.

    Returns None without an upper limit or a table for the package, and the empty text if no Python has a wheel.
    """
    table: dict[str, str] = load_tables()["newest_python"].get(canonicalize_name(requirement.name), {})
    ends = [part for part in requirement.specifier if part.operator in {"==", "~=", "<", "<="}]
    try:
        limits = [(Version(part.version.removesuffix(".*")), part.operator) for part in ends]
    except InvalidVersion:
        return None
    if not limits or not table:
        return None
    end, operator = min(limits, key=lambda row: row[0])
    rows = [
        python
        for release, python in table.items()
        if Version(release) < end or (Version(release) == end and operator != "<")
    ]
    return rows[-1] if rows else next(iter(table.values()))
