"""Chooses the packages of the image: the project's list if imgtool can lock all of it, else single requirements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from imgtool_project_reader.companions import (
    NEEDED_BY_TENSORFLOW,
    add_release,
    brings_keras,
    find_release,
    is_in_python,
    is_needed,
    list_also,
    with_extras,
)
from imgtool_project_reader.knowledge import Knowledge, Variant
from imgtool_project_reader.limits import can_be, find_newest_python, has_end, limit_by_code, list_called
from imgtool_project_reader.listings import Listing
from imgtool_project_reader.programs import Reached
from imgtool_project_reader.python2 import is_module_of_2
from imgtool_project_reader.read import Project, list_locked, list_placed
from imgtool_project_reader.statement import Certainty, Fact, Statement, applies, parse_requirement
from imgtool_project_reader.system_packages import choose_system
from imgtool_project_reader.tables import (
    find_distribution,
    load_tables,
)

_READ_BY_SPEC = re.compile(r".*\.(?:txt|in|pip)|(?:.*/)?(?:pyproject|pylock.*)\.toml|(?!(?:.*/)?setup\.py$).*\.py")
_TOOLS = frozenset({"pip", "setuptools", "wheel", "python", "jupyter", "notebook", "jupyterlab", "ipykernel"})
_ITSELF = r"(?:-e )?\.(?:\[[\w.,-]*\])?"  # a line that installs the project itself
_IDLE = "the program imports nothing of it, and it has no wheel, or is no Python package"


@dataclass(frozen=True, slots=True)
class Line:
    """A requirement for a spec, and where it comes from; `guess` marks a requirement that no file states."""

    text: str
    place: str
    guess: bool = False


@dataclass(frozen=True, slots=True)
class Concessions:
    """Changes that imgtool made because an index could not resolve the packages: package names and reasons.

    Attributes:
        loosened: packages that lose their limits.
        left_out: packages without a fitting wheel.
        added: requirements that the program lacked when it ran.
        system: Debian packages that the program lacked.
        absent: Debian packages that the base's archives lack.
    """

    loosened: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The packages that the image installs.

    Attributes:
        requirements: the project's file, with its `extras`; None if there are only lines.
        lines: requirements in addition to the file.
        why_lines: the reason why the spec does not name the project's file.
        packages: the names of all these packages.
        system: Debian packages, with the place of the statement or the wheel that needs them.
        builds_only: Debian packages that the project names but that a running program does not need.
        dropped: requirements of the project that the image does not get, with the reasons.
        unknown: imports for which neither a file nor a table names a package.
    """

    requirements: str | None = None
    extras: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    why_lines: str | None = None
    packages: frozenset[str] = frozenset()
    system: tuple[tuple[str, str], ...] = ()
    builds_only: tuple[str, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def choose_packages(
    project: Project,
    listings: tuple[Listing, ...],
    reached: Reached | None,
    variant: Variant,
    knowledge: Knowledge,
    *,
    concessions: Concessions,
    folder: str = ".",
) -> Needs:
    """Chooses the packages to install in addition to the framework, for a resolved variant."""
    listing = listings[0] if listings else None
    stated = [item for item in listing.packages if applies(item.requirement, variant.python)] if listing else []
    unsure = [item for item in stated if item.certainty is Certainty.GUESS or _is_of_readme(item)]
    idle = [item for item in unsure if not _is_imported(item.package, reached)]
    said = {item.package for item in stated if item.requirement.specifier}  # rather than a list that the file includes
    stated = [item for item in stated if item not in idle and (item.requirement.specifier or item.package not in said)]
    placed = list_placed(project)
    changed = {"python", *load_tables()["renamed"], *concessions.loosened, *concessions.left_out}  # python: conda's
    changed |= {item.package for item in stated if item.package in placed and not str(item.requirement.specifier)}
    own = variant.framework
    changed |= {item.package for item in stated if re.fullmatch(own.brought, item.package)}
    has_build = own.companions and any(item.fact is Fact.BUILD for item in (listing.statements if listing else ()))
    why = None
    if listing:
        is_changed = bool(idle or has_build) or any(
            item.package in changed or is_in_python(item.package, variant) for item in stated
        )
        why = f"from {listing.file}, changed" if is_changed else _find_trouble(project, listing, variant, knowledge)
    named: list[Line] = []
    dropped: list[tuple[str, str]] = []
    if listing and why:
        asked = [item.requirement.specifier for item in stated if item.package in variant.framework.packages]
        patches = [f"{variant.release.rpartition('.')[0]}{end}" for end in (".0rc0", *(f".{n}" for n in range(10)))]
        far = any(not any(limit.contains(patch, prereleases=True) for patch in patches) for limit in asked)
        named, dropped = _mend(stated, project, variant, knowledge, concessions, far=far)
    renamed = load_tables()["renamed"]
    has = {renamed.get(item.package, item.package) for item in listing.packages} if listing else set()
    limits = _choose_limits(reached, stated, list_locked(project), variant, knowledge)
    missing, unknown = _find_missing(project, listings, reached, variant, has=has, limits=limits)
    missing = [line for line in missing if canonicalize_name(_name_of(line.text)) not in concessions.left_out]
    missing += [*_list_companions((item for item in stated if item.package not in limits), variant)] if not why else []
    missing += [Line(text, said) for text, said in concessions.added.items()]
    wanted = {item.package: item.requirement for item in (listing.packages if listing else ())}
    parsed = (parse_requirement(line.text) for line in (*named, *missing))
    wanted |= {canonicalize_name(requirement.name): requirement for requirement in parsed if requirement}
    missing += [Line(text, by, guess=True) for text, by in list_also(wanted, variant)]
    missed = {canonicalize_name(_name_of(line.text)) for line in missing}
    named = [line for line in named if canonicalize_name(_name_of(line.text)) not in missed]
    names = has | {canonicalize_name(_name_of(line.text)) for line in missing}
    wheels = {name: Requirement(name) for name in names} | wanted
    system, builds_only = choose_system(project, listings, wheels, folder, reached)
    return Needs(
        requirements=listing.file if listing and not why else None,
        extras=listing.extras if listing and not why else (),
        lines=(*named, *missing),
        why_lines=why,
        packages=frozenset(wheels),
        system=tuple(row for row in {**system, **concessions.system}.items() if row[0] not in concessions.absent),
        builds_only=builds_only,
        dropped=(*dropped, *((f"{item.value} ({item.place}) left out", _IDLE) for item in idle)),
        unknown=unknown,
    )


def _is_of_readme(item: Statement) -> bool:
    """Tells whether a README installs a package from Git, which may be for another program than the one that trains."""
    return item.requirement.url is not None and item.file.rpartition("/")[2].lower().startswith("readme")


def _is_imported(name: str, reached: Reached | None) -> bool:
    modules = {item.module for item, *_ in (reached.foreign if reached else ())}
    named = {find_distribution(module) or module.partition(".")[0] for module in modules}
    return name in {canonicalize_name(found) for found in named if "://" not in found}


def _find_trouble(project: Project, listing: Listing, variant: Variant, knowledge: Knowledge) -> str | None:
    """Returns the reason why a spec cannot name the listing's file; None if a spec can name it."""
    if not _READ_BY_SPEC.fullmatch(listing.file):
        return f"from {listing.file}"
    try:
        texts = knowledge.read_list(project.folder, listing.file, listing.extras)
    except ValueError as error:
        return f"not `requirements: {listing.file}`: {error}"
    lines = [line.strip() for _, text in texts for line in text.splitlines()]
    if any(re.fullmatch(_ITSELF, line) for line in lines):
        is_built = listing.file.endswith(".toml")
        why = "whose dependencies a build computes" if is_built else "which installs the project itself too"
        return f"from {listing.file}, {why}"
    read = {canonicalize_name(item.name) for line in lines if (item := parse_requirement(line))}
    if listing.file.endswith(".toml") and not {item.package for item in listing.packages} <= read:
        return f"from {listing.file}, whose [project] names fewer"
    fault = knowledge.find_fault(texts, variant)
    return f"not `requirements: {listing.file}`: {fault.message}" if fault else None


def _mend(
    stated: Iterable[Statement],
    project: Project,
    variant: Variant,
    knowledge: Knowledge,
    concessions: Concessions,
    *,
    far: bool,
) -> tuple[list[Line], list[tuple[str, str]]]:
    """Returns the requirements for a spec, with a lock file's pins and without conflicts, and those that it dropped.

    `far` means that the project needs an older TensorFlow than imgtool supports. In that case, the project's limits on
    dependencies of TensorFlow are for that older release.
    """
    placed = list_placed(project)
    lines, dropped = dict[str, Line](), list[tuple[str, str]]()
    for item, named in _rename(stated, variant):
        requirement, name, place = named, canonicalize_name(named.name), item.place
        if re.fullmatch(variant.framework.brought, name):
            dropped.append(
                (f"{requirement} ({place}) left out", f"the build of {variant.framework.fact} brings its own")
            )
            continue
        if name in concessions.left_out:
            dropped.append((f"{requirement.name} ({place}) left out", concessions.left_out[name]))
            continue
        reason = concessions.loosened.get(name)
        if not reason:
            requirement, place = _specify(requirement, place, list_locked(project), placed)
        reason = reason or _find_reason(requirement, variant, knowledge, far=far)
        plain = Requirement(f"{requirement.name}{with_extras(requirement)}")
        if reason:
            dropped.append((f"{requirement.name}{requirement.specifier} ({item.place})", reason))
            requirement = plain
        if release := find_release(requirement, variant):
            requirement = _with_specifier(requirement, Requirement(release))
        requirement.marker = None  # the marker applies to this Python; other lines are already gone
        lines[name] = Line(str(requirement), place)
    return list(lines.values()), dropped


def _rename(stated: Iterable[Statement], variant: Variant) -> Iterator[tuple[Statement, Requirement]]:
    """Yields the packages that an image may need in addition to the framework, with their names on an index."""
    rows = [item for item in stated if not (variant.framework.is_own(item.package) or item.package in _TOOLS)]
    real = {item.package for item in rows}
    for item in rows:
        other = load_tables()["renamed"].get(item.package)
        is_empty = any(part.version.startswith("0.0") for part in item.requirement.specifier)  # as sklearn==0.0
        if other and other not in real:
            yield item, Requirement(f"{other}{'' if is_empty else item.requirement.specifier}")
        elif not (other or is_in_python(item.package, variant)):
            yield item, item.requirement


def _find_reason(requirement: Requirement, variant: Variant, knowledge: Knowledge, *, far: bool) -> str | None:
    """Returns the reason why a requirement must lose its limit or URL; None if it can stay."""
    name = canonicalize_name(requirement.name)
    if requirement.url and not requirement.url.startswith("git+"):
        return "a lock names releases on an index, not URLs"
    if find_newest_python(requirement) == "":
        return f"it has no wheel for Python {variant.python}"
    if found := _fight(requirement, variant, knowledge):
        return found
    if far and requirement.specifier and name in NEEDED_BY_TENSORFLOW and not is_needed(requirement):
        return f"it is for another {variant.framework.fact} than {variant.release}"
    return None


def _specify(
    requirement: Requirement, place: str, pinned: Mapping[str, Requirement], placed: Mapping[str, Statement]
) -> tuple[Requirement, str]:
    """Returns a more exact requirement if another file has one: the release in a lock, or a README's Git repository."""
    name = canonicalize_name(requirement.name)
    if requirement.url is None and not requirement.specifier and name in placed:
        return placed[name].requirement, placed[name].place
    if requirement.url is None and name in pinned and _is_within(pinned[name], requirement):
        return _with_specifier(requirement, pinned[name]), f"{place}, locked"
    return requirement, place


def _is_within(lock: Requirement, requirement: Requirement) -> bool:
    version = next(iter(lock.specifier)).version
    return requirement.specifier.contains(version, prereleases=True)


def _with_specifier(requirement: Requirement, other: Requirement) -> Requirement:
    changed = Requirement(str(requirement))
    changed.specifier = other.specifier
    return changed


def _find_missing(
    project: Project,
    listings: tuple[Listing, ...],
    reached: Reached | None,
    variant: Variant,
    *,
    has: set[str],
    limits: Mapping[str, Requirement],
) -> tuple[list[Line], tuple[str, ...]]:
    """Finds, in other files or in the table, packages for imports that the listing does not cover.

    `limits` also contains packages that the listing names, but without the limits that the code needs.
    """
    elsewhere = _list_elsewhere(project, listings, variant.python)
    lines: dict[str, Line] = {}
    unknown: dict[str, str] = {}
    for item, source, always in reached.foreign if reached else ():
        top = item.module.partition(".")[0]
        name = "keras" if top == "keras" else find_distribution(item.module)
        limit = limits.get(canonicalize_name(top if name is None or "://" in name else name))
        name = name or (limit.name if limit else None)
        is_brought = top == "keras" and brings_keras(variant)
        name = top if top in variant.framework.beside else name
        if is_module_of_2(top) or is_brought or (limit is None and _is_there(item.module, name, has, variant)):
            continue
        name = name or (top if canonicalize_name(top) in elsewhere else None)
        if name is None:
            unknown |= {top: f"{top} ({source.path}:{item.line})"} if always and top not in unknown else {}
            continue
        plain = canonicalize_name(name) if "://" not in name else name
        other = elsewhere.get(plain) or (elsewhere.get("opencv-python") if top == "cv2" else None)
        if limit is None and (plain in lines or not (always or other)):
            continue
        if other is not None and limit is None:
            requirement = other.requirement
            requirement.marker = None
            lines[plain] = Line(str(requirement), other.place)
        else:
            where = f"imported in {source.path}:{item.line}"
            text = (find_release(limit, variant) or str(limit)) if limit else add_release(name, variant)
            lines[plain] = Line(text, where, guess=True)
    called = {name: by for name, by in list_called(reached).items() if name not in {*has, *lines}}
    return [*lines.values(), *(Line(name, by, guess=True) for name, by in called.items())], tuple(unknown.values())


def _list_elsewhere(project: Project, listings: tuple[Listing, ...], python: str) -> dict[str, Statement]:
    """Maps the names of packages to the statements about them in files other than the listing."""
    pinned = (item for rows in project.statements.values() for item in rows if item.fact is Fact.PINNED)
    listed = (item for listing in listings[1:] for item in listing.packages)
    found: dict[str, Statement] = {}
    for item in (*listed, *pinned):
        if (item.requirement.url or "git+").startswith("git+") and applies(item.requirement, python):
            found.setdefault(item.package, item)
    return found


def _choose_limits(
    reached: Reached | None, stated: Iterable[Statement], locked: Iterable[str], variant: Variant, knowledge: Knowledge
) -> dict[str, Requirement]:
    """Returns requirements for releases with the names that the program uses, combined with the listing's limits.

    Leaves out packages for which the listing, a lock or TensorFlow itself sets an upper limit.
    """
    said = {item.package: item.requirement for item in stated}
    chosen = {}
    for name, (limit, _) in limit_by_code(reached).items():
        mine = said.get(name, Requirement(name))
        both = mine.specifier & limit.specifier
        beyond = SpecifierSet(str(limit.specifier).replace("<", ">="))
        is_free = name not in locked and mine.url is None and not has_end(mine.specifier) and can_be(both)
        needs_it = can_be(beyond & _needed_by(name, variant, knowledge))
        if is_free and needs_it and not _fight(Requirement(f"{name}{both}"), variant, knowledge):
            chosen[name] = Requirement(f"{limit.name}{with_extras(mine)}{both}")
    return chosen


def _needed_by(name: str, variant: Variant, knowledge: Knowledge) -> SpecifierSet:
    """Returns the releases of a package that the framework's METADATA requires."""
    release = knowledge.list_releases(variant.framework.key).get(variant.release)
    limit = release.requires.get(name, "") if release else ""
    return SpecifierSet(re.split(r" \|\| |;", limit)[0].strip())


def _fight(requirement: Requirement, variant: Variant, knowledge: Knowledge) -> str | None:
    """Returns the reason why TensorFlow and a requirement do not fit together; None if they do."""
    fault = knowledge.find_fault((("code", f"{requirement}\n"),), variant)
    return fault.reason if fault else None


def _is_there(module: str, name: str | None, has: set[str], variant: Variant) -> bool:
    """Tells whether the framework or the listing provides an imported module."""
    top = module.partition(".")[0]
    if top in variant.framework.brings and (top != "google" or name is None):
        return True
    plain = canonicalize_name(name) if name and "://" not in name else name
    is_opencv = plain == "opencv-python-headless" and bool({"opencv-python", "opencv-contrib-python"} & has)
    is_last_word = name is None and any(listed.endswith(f"-{canonicalize_name(top)}") for listed in has)
    return plain in has or is_opencv or is_last_word or _is_listed(top, has)


def _name_of(text: str) -> str:
    """Returns the name of the package in a line; for a URL, the last part of the URL."""
    requirement = parse_requirement(text)
    return requirement.name if requirement else text.rpartition("/")[2].removesuffix(".git")


def _list_companions(stated: Iterable[Statement], variant: Variant) -> Iterator[Line]:
    """Yields releases for companions without a version in a file, because the newest may need another TensorFlow."""
    for item in stated:
        if release := find_release(item.requirement, variant):
            yield Line(release, f"{item.place}; its release for {variant.framework.fact} {variant.release}")


def _is_listed(module: str, has: set[str]) -> bool:
    """Tells whether the name of a listed package is similar to the name of an import."""
    plain = canonicalize_name(module)
    return plain in has or any(
        name.endswith(f"-fork-{plain}") or name.startswith((f"{plain}-", f"python-{plain}", f"py{plain}"))
        for name in has
    )
