"""Chooses releases of TensorFlow and Python that exist and satisfy the most trusted statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imgtool_project_reader.frameworks import TENSORFLOW, Framework
from imgtool_project_reader.knowledge import Release
from imgtool_project_reader.limits import find_limits, find_newest_python, has_end, limit_by_code
from imgtool_project_reader.listings import Listing
from imgtool_project_reader.programs import Reached
from imgtool_project_reader.read import Project, is_lock
from imgtool_project_reader.source import Source
from imgtool_project_reader.statement import (
    Certainty,
    Fact,
    Statement,
    applies,
    is_dockerfile,
    parse_requirement,
    parse_specifier,
)
from imgtool_project_reader.tables import limit_by_companion

_OLD_ENOUGH = (2, 3)  # code that no later release runs is for TensorFlow 1, unless a statement contradicts


@dataclass(frozen=True, slots=True)
class Judged:
    """A statement, and whether the choice follows the statement."""

    statement: Statement
    followed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A framework's release, and Python.

    Attributes:
        framework: the framework.
        release: its release.
        python: the minor version; None if no statement sets one, so that imgtool may choose.
        source: the place of the last statement that excluded a release; None for a guess.
        is_exact: whether the statements allow only one minor version.
        rows: all statements, in the order of trust.
    """

    framework: Framework
    release: str
    python: str | None
    source: str | None
    is_exact: bool
    rows: tuple[Judged, ...]


def choose(
    project: Project,
    listings: tuple[Listing, ...],
    reached: Reached | None,
    releases: Mapping[str, Release],
    *,
    framework: Framework = TENSORFLOW,
    folder: str = ".",
    given: str | None = None,
) -> Choice:
    """Chooses a release and a Python that the statements allow, starting with the most trusted statements."""
    rows: list[Judged] = []
    statements = [*_list_statements(framework, project, listings, reached, folder)]
    known = [*releases] or [*filter(None, (_exact(item.value) for item in statements)), framework.usual]
    allowed = [given] if given else known
    is_decided, decided_by = bool(given), None
    for statement in statements:
        fits = _fits(statement.value, known)
        kept = [version for version in allowed if version in fits]
        followed = bool(kept)
        if followed and len(kept) < len(allowed):
            decided_by = statement.place
            is_decided = is_decided or _is_bounded(statement.value)
        allowed = kept or allowed
        rows.append(Judged(statement, followed))
    older = [version for version in allowed if version.startswith("1.")]
    if older and all(_key(version) < _OLD_ENOUGH for version in allowed):
        allowed = older  # nothing asks for TensorFlow 2
    last = framework.usual if framework.is_old_usual and not is_decided else None
    preferred = _order(allowed, releases, last) if releases or given else allowed
    python_rows = [*_python_statements(project, listings, reached, folder)]
    skipped = partial(_skipped, python_rows, with_guesses=not is_decided)
    best = min(preferred, key=lambda version: skipped(_pythons(version, releases)))
    python, judged = _choose_python(python_rows, _pythons(best, releases))
    minors = {".".join(version.split(".")[: 2 if framework is TENSORFLOW else None]) for version in allowed}
    return Choice(
        framework=framework,
        release=best,
        python=python,
        source=decided_by,
        is_exact=len(minors) == 1,
        rows=(*rows, *judged),
    )


def _list_statements(
    framework: Framework, project: Project, listings: tuple[Listing, ...], reached: Reached | None, folder: str
) -> Iterator[Statement]:
    first, others = listings[:1], listings[1:]
    for listing in first:
        yield from _of_listing(framework, listing, Certainty.STATED)
    pinned = [item for rows in project.statements.values() for item in rows if item.fact is Fact.PINNED]
    pinned = [item for item in pinned if item.package in framework.packages] or [
        item for item in pinned if item.package in framework.parts
    ]
    is_listed = any(item.package in framework.packages for listing in first for item in listing.packages)
    beside = {_folder(listing) for listing in first}
    for item in pinned:
        if is_lock(item.file) and (is_listed or _folder(item) in beside):
            yield replace(item, fact=framework.fact, value=str(item.requirement.specifier))
    near = {".", folder}
    everything = [item for rows in project.statements.values() for item in rows if item.fact is framework.fact]
    images = [item for item in everything if is_dockerfile(item.file)]
    yield from (item for item in images if _folder(item) in near)
    yield from _of_code(reached) if framework is TENSORFLOW else ()
    for listing in others:
        if listing.score > -3:
            yield from _of_listing(framework, listing, Certainty.HINT)
    for item in pinned:
        if not is_lock(item.file):
            yield replace(item, fact=framework.fact, value=str(item.requirement.specifier), certainty=Certainty.HINT)
    prose = [item for item in everything if item not in images]
    ends = [item for item in prose if item.value.startswith("<")]  # the code may need newer releases by now
    yield from sorted(
        (item for item in prose if item not in ends),
        key=lambda item: (-item.certainty, _folder(item) != folder, item.file.count("/")),
    )
    yield from (item for item in images if _folder(item) not in near)
    keras = next((item.requirement for one in first for item in one.packages if item.package == "keras"), None)
    limits = _limits_of_code(reached, keras.specifier if keras else SpecifierSet())
    of_code = [*limits] if framework is TENSORFLOW else []
    yield from (item for item in of_code if item.value.startswith(">="))
    yield from ends
    yield from (item for item in of_code if not item.value.startswith(">="))


def _exact(value: str) -> str | None:
    """Returns the version of a limit `==VERSION`; None for other limits."""
    exact = [part.version for part in parse_specifier(value) or () if part.operator == "==" and "*" not in part.version]
    return exact[0] if exact else None


def _folder(item: Statement | Listing) -> str:
    return item.file.rpartition("/")[0] or "."


def _of_listing(framework: Framework, listing: Listing, certainty: Certainty) -> Iterator[Statement]:
    limited = [item for item in listing.packages if item.requirement.specifier and applies(item.requirement)]
    own = [item for item in limited if item.package in framework.packages]
    for item in own or [item for item in limited if item.package in framework.parts]:
        value = str(item.requirement.specifier)
        yield replace(item, fact=framework.fact, value=value, certainty=min(item.certainty, certainty))
    for item in limited:
        if item.package in framework.companions and (limit := _limit_by_number(item, framework)):
            yield replace(item, fact=framework.fact, value=limit, certainty=min(item.certainty, Certainty.HINT))
    for item in listing.packages if framework is TENSORFLOW else ():
        limit = limit_by_companion(item.requirement) if applies(item.requirement) else None
        if limit:
            place = replace(item, fact=Fact.TENSORFLOW, value=limit, certainty=min(item.certainty, Certainty.HINT))
            yield place


def _limit_by_number(item: Statement, framework: Framework) -> str | None:
    """Returns the framework's release that a companion's release needs: 2.2.1 for torchvision 0.17.1."""
    exact = re.match(r"==(\d+)\.(\d+)\.(\d+)", str(item.requirement.specifier))
    if exact is None:
        return None
    major, minor, patch = map(int, exact.groups())
    before = framework.companions[item.package]
    if minor < before or (not before and major == 0):  # of PyTorch 1.13 and older
        return f"==1.{minor - bool(before)}.{patch}"
    return f"==2.{minor - before}.{patch - (before == minor)}"  # torchvision 0.15.1 was the first for PyTorch 2.0


def _of_code(reached: Reached | None) -> Iterator[Statement]:
    """Yields statements that follow from the names that the program's files use from `tensorflow`."""
    if reached is None:
        return
    first = sum(source.first[0] for source in reached.sources)
    second = sum(source.second for source in reached.sources)
    user = next((source for source in reached.sources if source.first[0]), None)
    own = reached.sources[0].first[0]
    may_be_a_branch = not own and first <= 2 and second  # branches of a library's code for old releases
    if user is not None and first > second and not may_be_a_branch:
        yield Statement(Fact.TENSORFLOW, "<2", user.path, user.first[1], Certainty.HINT)
    newer = [(source.path, line) for source in reached.sources for limit, line in source.limits if limit[:3] == ">=2"]
    if newer and second > 2 * first:
        yield Statement(Fact.TENSORFLOW, ">=2", *newer[0], Certainty.HINT)
    for source in reached.sources:
        if source.old_keras:
            yield Statement(Fact.TENSORFLOW, "<2", source.path, source.old_keras, Certainty.GUESS)


def _limits_of_code(reached: Reached | None, keras: SpecifierSet) -> Iterator[Statement]:
    """Yields limits from single API names, `<2` last. These limits are guesses: code may check for a name."""
    rows = [
        (limit, source.path, line)
        for source in (reached.sources if reached else ())
        for limit, line in (*source.limits, *_limits_of_keras(source, keras))
    ]
    for item, source, _ in reached.foreign if reached else ():
        named = parse_requirement(item.module.partition(".")[0])  # none for a name such as _ext
        since = limit_by_companion(named) if named else None
        rows += [(since, source.path, item.line)] if since == "<2" else []
    for limit, path, line in sorted(rows, key=lambda row: (row[0] == "<2", row[0].startswith("<"))):
        yield Statement(Fact.TENSORFLOW, limit, path, line, Certainty.GUESS)


def _limits_of_keras(source: Source, stated: SpecifierSet) -> Iterator[tuple[str, int]]:
    """Yields limits on TensorFlow from the Keras names that a file uses, if they fit the `stated` Keras releases."""
    versions = ["1.2.2", *(f"2.{minor}.{patch}" for minor in range(16) for patch in range(10)), "3.0.5"]
    for limit, line in find_limits(source.used):
        fits = limit.name == "keras" and any(map(stated.contains, limit.specifier.filter(versions)))
        if fits and (of_tensorflow := limit_by_companion(limit)):
            yield of_tensorflow, line


def _fits(value: str, releases: list[str]) -> frozenset[str]:
    """Returns the releases that a specifier allows; if no table has the release, returns those with the same minor."""
    specifier = parse_specifier(value)
    if specifier is None:
        return frozenset()
    fits = frozenset(version for version in releases if specifier.contains(version, prereleases=True))
    if fits:
        return fits
    first = frozenset(version for version in releases if version.startswith("1."))
    if exact := re.search(r"[=~]=(\d+)\.(\d+)", value):
        near = frozenset(version for version in releases if version.startswith(f"{exact[1]}.{exact[2]}."))
        if near or (first and int(exact[1]) <= 1):
            return near or first  # of TensorFlow, for 0.x, and 1.x before the table
    ends = [Version(part.version.removesuffix(".*")) for part in specifier if part.operator in {"==", "~=", "<", "<="}]
    oldest = min(releases, key=Version, default=None)
    return frozenset({oldest} if oldest and ends and not first and max(ends) < Version(oldest) else ())


def _is_bounded(value: str) -> bool:
    """Tells whether a specifier has an upper limit, other than a major version or the first release with Keras 3."""
    return any(
        part.operator in {"==", "~=", "===", "<", "<="}
        and re.fullmatch(r"\d+(\.\*)?|3(\.0)*|2\.16", part.version) is None
        for part in SpecifierSet(value)
    )


def _key(version: str) -> tuple[int, ...]:
    return Version(version).release


def _order(allowed: list[str], releases: Mapping[str, Release], last: str | None) -> list[str]:
    """Orders releases: newer minors before older minors, and the recommended release of a minor first.

    If no statement sets a limit, minors after that of `last` come at the end, such as TensorFlow with Keras 3. Of
    these, the oldest come first, because a lower limit is usually the release that the author had.
    """

    def key(version: str) -> tuple[int, ...]:
        numbers = _key(version)
        is_usual = version in releases and releases[version].is_recommended
        minor, newest = numbers[:2], [-number for number in (*numbers, 0)[:4]]
        if last and minor > _key(last)[:2]:
            return (1, minor[0], minor[1], not is_usual, *newest)
        return (0, -minor[0], -minor[1], not is_usual, *newest)

    return sorted(allowed, key=key)


def _python_statements(
    project: Project, listings: tuple[Listing, ...], reached: Reached | None, folder: str
) -> Iterator[Statement]:
    """Yields limits on Python: from the chosen listing's files, the top and the program's folder, code, then prose.

    A Dockerfile comes after files that list the project's Pythons, because it uses only one Python.
    """
    everything = [item for rows in project.statements.values() for item in rows if item.fact is Fact.PYTHON]
    main = {item.file for listing in listings[:1] for item in listing.statements} | {item.file for item in listings[:1]}
    near = [item for item in everything if item.file in main or _folder(item) in {".", folder}]
    firm = [item for item in near if item.certainty is Certainty.STATED]
    yield from sorted(firm, key=lambda item: (item.file not in main, is_dockerfile(item.file)))
    for source in reached.sources if reached else ():
        yield from (Statement(Fact.PYTHON, value, source.path, line, Certainty.HINT) for value, line in source.pythons)
    for listing in listings[:1]:
        for item in listing.packages:
            if limit := find_newest_python(item.requirement):
                yield replace(item, fact=Fact.PYTHON, value=f"<={limit}", certainty=Certainty.HINT)
    ended = {
        item.package for listing in listings[:1] for item in listing.packages if has_end(item.requirement.specifier)
    }
    for name, (requirement, place) in limit_by_code(reached).items():
        if name not in ended and (limit := find_newest_python(requirement)):
            path, _, line = place.rpartition(":")
            yield Statement(Fact.PYTHON, f"<={limit}", path, int(line), Certainty.HINT)
    yield from (item for item in near if item.certainty is not Certainty.STATED)


def _pythons(version: str, releases: Mapping[str, Release]) -> tuple[str, ...]:
    return releases[version].pythons if version in releases else ()


def _limit(pythons: Iterable[str], value: str) -> list[str]:
    """Returns the minor versions of Python with a release that the specifier `value` allows."""
    specifier = parse_specifier(value)
    if specifier is None:
        return list(pythons)
    return [minor for minor in pythons if any(specifier.contains(f"{minor}{patch}") for patch in ("", ".7", ".99"))]


def _skipped(rows: list[Statement], pythons: Sequence[str], *, with_guesses: bool) -> tuple[int, int]:
    """Counts the firm statements and the guesses about Python that none of the remaining `pythons` satisfies."""
    skipped = [0, 0]
    for row in rows:
        kept = _limit(pythons, row.value)
        skipped[row.certainty is Certainty.GUESS] += not kept
        pythons = kept or pythons
    return skipped[0], skipped[1] if with_guesses else 0


def _choose_python(rows: list[Statement], every: Sequence[str]) -> tuple[str | None, list[Judged]]:
    pythons = [*every]
    judged = []
    for row in rows:
        kept = _limit(pythons, row.value)
        judged.append(Judged(row, bool(kept)))
        is_old = not kept and row.certainty is Certainty.STATED and row.value.rpartition("<")[1]
        pythons = kept or (pythons[:1] if is_old else pythons)
    return (pythons[-1] if pythons and pythons != [*every] else None), judged
