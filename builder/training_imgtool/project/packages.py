"""Chooses what the image installs: the project's own file where a lock can hold it, else its lines; what it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from training_imgtool.core.errors import InputError
from training_imgtool.plan import Variant
from training_imgtool.project.listings import Listing
from training_imgtool.project.programs import Reached
from training_imgtool.project.read import Project
from training_imgtool.project.source import Imported, Source
from training_imgtool.project.statement import TENSORFLOW, Fact, Statement, parse_requirement
from training_imgtool.project.tables import (
    WITH_TENSORFLOW,
    find_distribution,
    find_libraries,
    find_limit,
    limit_by_companion,
    load_tables,
)
from training_imgtool.spec.requirements import (
    PYTHON_LIMIT,
    Named,
    list_code,
    parse_requirements,
    read_requirement_files,
)
from training_imgtool.versions.markers import marker_environment
from training_imgtool.versions.matrix import Matrix
from training_imgtool.versions.rules import Finding, limit_pythons
from training_imgtool.versions.rules_requirements import OTHER_TENSORFLOW, check_lines, check_requirements

_OF_TENSORFLOW = TENSORFLOW | {"tensorflow-metal", "tensorflow-tpu"}
_NEEDED_BY_TENSORFLOW = frozenset(  # and by its Keras
    """absl-py astor gast google-pasta grpcio h5py keras keras-applications keras-preprocessing markdown numpy
    opt-einsum protobuf six tensorboard tensorflow-estimator termcolor werkzeug wheel wrapt bleach html5lib""".split()  # noqa: SIM905
)
_READ_BY_SPEC = re.compile(r".*\.(?:txt|in|pip)|(?:.*/)?pyproject\.toml")
_TOOLS = frozenset({"pip", "setuptools", "wheel", "python", "jupyter", "notebook", "jupyterlab", "ipykernel"})
_ITSELF = r"(?:-e )?\.(?:\[[\w.,-]*\])?"  # a line that names the project
_ASIDE = -3.0  # the score below which a listing is for something else
_KERAS_BEFORE = {"1": "keras>=2.2.4,<2.4", "2": "keras>=2.3,<2.5"}  # TensorFlow before 2.6 brings none of its own


@dataclass(frozen=True, slots=True)
class Line:
    """A requirement that a spec names, and where it is from; `guess` for one that no file states."""

    text: str
    place: str
    guess: bool = False


@dataclass(frozen=True, slots=True)
class Concessions:
    """What a resolution on an index has shown: names of packages, and why.

    Attributes:
        loosened: those that lose their limits.
        left_out: those that no wheel exists of.
        added: requirements that the program lacked when it ran.
        system: Debian packages that it lacked.
    """

    loosened: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the image installs.

    Attributes:
        requirements: the project's file, with its `extras`; None where the lines are all there is.
        lines: what comes on top of it.
        why_lines: why the spec does not name the project's file.
        system: Debian packages, with the place of the statement or the wheel that needs them.
        dropped: what the project lists and the image does not get, with the reason.
        unknown: imports of packages that no file and no table names.
    """

    requirements: str | None = None
    extras: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    why_lines: str | None = None
    system: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def choose_packages(
    project: Project,
    listings: tuple[Listing, ...],
    reached: Reached | None,
    variant: Variant,
    matrix: Matrix,
    *,
    concessions: Concessions,
) -> Needs:
    """Chooses what to install beside TensorFlow for a variant that is resolved already."""
    listing = listings[0] if listings else None
    environment = marker_environment(variant.python, "linux/amd64")
    stated = [item for item in listing.packages if _counts(item, environment)] if listing else []
    changed = {*load_tables()["renamed"], *concessions.loosened, *concessions.left_out}
    why = None
    if listing:
        is_changed = any(item.package in changed or _is_in_python(item.package, variant) for item in stated)
        why = f"from {listing.file}, changed" if is_changed else _find_trouble(project, listing, variant, matrix)
    named: list[Line] = []
    dropped: list[tuple[str, str]] = []
    if listing and why:
        asked = [item.requirement.specifier for item in stated if item.package in TENSORFLOW]
        patches = [f"{variant.tensorflow.rpartition('.')[0]}{end}" for end in (".0rc0", *(f".{n}" for n in range(10)))]
        far = any(not any(limit.contains(patch, prereleases=True) for patch in patches) for limit in asked)
        named, dropped = _mend(stated, project, variant, matrix, concessions, far=far)
    renamed = load_tables()["renamed"]
    has = {renamed.get(item.package, item.package) for item in listing.packages} if listing else set()
    missing, unknown = _find_missing(project, listings, reached, has, variant)
    missing = [line for line in missing if canonicalize_name(_name_of(line.text)) not in concessions.left_out]
    missing += [*_list_companions(stated, variant)] if not why else []
    missing += [Line(text, said) for text, said in concessions.added.items()]
    system = {item.value: item.place for item in (listing.statements if listing else ()) if item.fact is Fact.SYSTEM}
    names = frozenset(has | {canonicalize_name(_name_of(line.text)) for line in missing})
    return Needs(
        requirements=listing.file if listing and not why else None,
        extras=listing.extras if listing and not why else (),
        lines=(*named, *missing),
        why_lines=why,
        system=tuple(
            {**dict.fromkeys(find_libraries(names), "the wheels need it"), **system, **concessions.system}.items()
        ),
        dropped=tuple(dropped),
        unknown=unknown,
    )


def _counts(item: Statement, environment: dict[str, str]) -> bool:
    marker = item.requirement.marker
    return marker is None or marker.evaluate({**environment, "extra": ""})


def _find_trouble(project: Project, listing: Listing, variant: Variant, matrix: Matrix) -> str | None:
    """Says why a spec cannot name the listing's file; None where it can."""
    if not _READ_BY_SPEC.fullmatch(listing.file):
        return f"from {listing.file}"
    try:
        texts = read_requirement_files(project.folder, listing.file, extras=listing.extras)
        parsed = parse_requirements(texts)
        limit_pythons(matrix.release(variant.tensorflow)[1], texts, variant.python)
    except InputError as error:
        return f"not `requirements: {listing.file}`: {error.message}"
    if any(re.fullmatch(rf"(?:{PYTHON_LIMIT}.*\n)?{_ITSELF}", text.strip()) for _, text in texts):
        return f"from {listing.file}, whose dependencies a build computes"
    if any(re.fullmatch(_ITSELF, line.strip()) for _, text in texts for line in text.splitlines()):
        return f"from {listing.file}, which installs the project itself too"
    findings = [*check_lines(texts), *_check(parsed, variant, matrix)]
    found = next((finding.message for finding in findings if not finding.warning), None)
    return f"not `requirements: {listing.file}`: {found}" if found else None


def _check(named: tuple[Named, ...], variant: Variant, matrix: Matrix) -> list[Finding]:
    minor, release = matrix.release(variant.tensorflow)
    return list(check_requirements(named, variant, minor, release, platform="linux/amd64", cuda_base=False))


def _mend(
    stated: Iterable[Statement],
    project: Project,
    variant: Variant,
    matrix: Matrix,
    concessions: Concessions,
    *,
    far: bool,
) -> tuple[list[Line], list[tuple[str, str]]]:
    """Returns the lines that a spec can hold: with what a lock file pinned, without what fights TensorFlow.

    `far` says that the project means an older TensorFlow than any that imgtool has: then the limits of what TensorFlow
    itself needs are that one's.
    """
    pinned = {
        item.package: item.requirement
        for rows in project.statements.values()
        for item in rows
        if item.fact is Fact.PINNED and item.file.rpartition("/")[2].endswith(".lock")
    }
    lines: dict[str, Line] = {}
    dropped: list[tuple[str, str]] = []
    for item in stated:
        requirement, place, name = item.requirement, item.place, item.package
        if _is_tensorflow(name) or name in _TOOLS or _is_in_python(name, variant):
            continue
        if other := load_tables()["renamed"].get(name):
            is_empty = any(part.version.startswith("0.0") for part in requirement.specifier)  # sklearn==0.0 has nothing
            requirement, name = Requirement(f"{other}{'' if is_empty else requirement.specifier}"), other
        if name in concessions.left_out:
            dropped.append((f"{requirement.name} ({place}) left out", concessions.left_out[name]))
            continue
        reason = concessions.loosened.get(name)
        if requirement.url and not requirement.url.startswith("git+"):
            reason = "a lock names releases on an index, not URLs"
        elif requirement.url is None and name in pinned and _is_within(pinned[name], requirement) and not reason:
            place, requirement = f"{place}, locked", _with_specifier(requirement, pinned[name])
        findings = [found for found in _check((Named(requirement, place),), variant, matrix) if not found.warning]
        reason = reason or (findings[0].hint if findings else None)
        if far and name in _NEEDED_BY_TENSORFLOW and requirement.specifier:
            reason = reason or f"it is that of another TensorFlow than {variant.tensorflow}"
        if reason:
            dropped.append((f"{requirement.name}{requirement.specifier} ({item.place})", reason))
            requirement = Requirement(f"{requirement.name}{_with_extras(requirement)}")
        if release := _release_of(requirement, variant):
            requirement = _with_specifier(requirement, Requirement(release))
        requirement.marker = None  # it holds for this Python, or the line would not be here
        lines[canonicalize_name(requirement.name)] = Line(str(requirement), place)
    return list(lines.values()), dropped


def _with_extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _is_within(lock: Requirement, requirement: Requirement) -> bool:
    version = next(iter(lock.specifier)).version
    return requirement.specifier.contains(version, prereleases=True)


def _with_specifier(requirement: Requirement, other: Requirement) -> Requirement:
    changed = Requirement(str(requirement))
    changed.specifier = other.specifier
    return changed


def _find_missing(
    project: Project, listings: tuple[Listing, ...], reached: Reached | None, has: set[str], variant: Variant
) -> tuple[list[Line], tuple[str, ...]]:
    """Finds the packages of imports that the listing does not name: from another file, else from the table."""
    elsewhere = _list_elsewhere(project, listings, marker_environment(variant.python, "linux/amd64"))
    code = _names_of_code(project, listings)
    lines: dict[str, Line] = {}
    unknown: dict[str, None] = {}
    for item, source, always in reached.foreign if reached else ():
        top = item.module.partition(".")[0]
        limit = _limit_of(item, source, has)
        name = "keras" if top == "keras" else find_distribution(item.module)
        if top in code or _is_there(item.module, name, has, variant, limit):
            continue
        name = name or (top if canonicalize_name(top) in elsewhere else None)
        if name is None:
            unknown |= {f"{top} ({source.path}:{item.line})": None} if always else {}
            continue
        plain = canonicalize_name(name) if "://" not in name else name
        other = elsewhere.get(plain) or (elsewhere.get("opencv-python") if top == "cv2" else None)
        if limit is None and (plain in lines or not (always or other)):
            continue
        if other is not None and limit is None and _is_for(other.requirement, variant):
            requirement = other.requirement
            requirement.marker = None
            lines[plain] = Line(str(requirement), other.place)
        else:
            where = f"imported in {source.path}:{item.line}"
            lines[plain] = Line(limit or _with_release(name, variant), where, guess=True)
    return list(lines.values()), tuple(unknown)


def _is_for(requirement: Requirement, variant: Variant) -> bool:
    """Says whether what may be a companion of TensorFlow is one of this release."""
    limit = limit_by_companion(requirement)
    return limit is None or SpecifierSet(limit).contains(variant.tensorflow, prereleases=True)


def _list_elsewhere(
    project: Project, listings: tuple[Listing, ...], environment: dict[str, str]
) -> dict[str, Statement]:
    """Returns what other files say about a package, by its name."""
    pinned = (item for rows in project.statements.values() for item in rows if item.fact is Fact.PINNED)
    near = (item for listing in listings[1:] if listing.score > _ASIDE for item in listing.packages)
    aside = (  # what documentation and tests need has the right name, and limits of its own
        replace(item, value=item.requirement.name)
        for listing in listings[1:]
        if listing.score <= _ASIDE
        for item in listing.packages
    )
    found: dict[str, Statement] = {}
    for item in (*near, *pinned, *aside):
        if (item.requirement.url or "git+").startswith("git+") and _counts(item, environment):
            found.setdefault(item.package, item)
    return found


def _limit_of(item: Imported, source: Source, has: set[str]) -> str | None:
    """Returns the requirement that still has what an import takes, unless the listing speaks of that package."""
    limit = find_limit(item.module, (*item.names, *source.taken))
    return None if limit and canonicalize_name(Requirement(limit).name) in has else limit


def _is_there(module: str, name: str | None, has: set[str], variant: Variant, limit: str | None) -> bool:
    """Says whether TensorFlow or the listing brings what is imported."""
    top = module.partition(".")[0]
    if top == "keras" and _brings_keras(variant):
        return True
    if limit is None and top in WITH_TENSORFLOW and (top != "google" or name is None):
        return True
    plain = canonicalize_name(name) if name and "://" not in name else name
    is_opencv = plain == "opencv-python-headless" and bool({"opencv-python", "opencv-contrib-python"} & has)
    is_last_word = name is None and any(listed.endswith(f"-{canonicalize_name(top)}") for listed in has)
    return plain in has or is_opencv or is_last_word or _is_listed(top, has)


def _brings_keras(variant: Variant) -> bool:
    numbers = variant.tensorflow.split(".")
    return (int(numbers[0]), int(numbers[1])) >= (2, 6)


def _name_of(text: str) -> str:
    """Returns the name that a line of packages gives; that of a URL is its last part."""
    requirement = parse_requirement(text)
    return requirement.name if requirement else text.rpartition("/")[2].removesuffix(".git")


def _is_in_python(name: str, variant: Variant) -> bool:
    """Says whether a package only gives older Pythons a module that this one brings."""
    since = load_tables()["backports"].get(name)
    return since is not None and Version(variant.python) >= Version(since)


def _is_tensorflow(name: str) -> bool:
    """Says whether a package is TensorFlow under some name."""
    return name in _OF_TENSORFLOW or OTHER_TENSORFLOW.fullmatch(name) is not None


def _list_companions(stated: Iterable[Statement], variant: Variant) -> Iterator[Line]:
    """Yields the releases of companions that a file names without one: the newest may be for another TensorFlow."""
    for item in stated:
        if release := _release_of(item.requirement, variant):
            yield Line(release, f"{item.place}; its release for TensorFlow {variant.tensorflow}")


def _release_of(requirement: Requirement, variant: Variant) -> str | None:
    """Returns the requirement of a companion that is named without versions and that TensorFlow does not bring."""
    name = canonicalize_name(requirement.name)
    needed = _NEEDED_BY_TENSORFLOW if _brings_keras(variant) else _NEEDED_BY_TENSORFLOW - {"keras"}
    is_brought = _is_tensorflow(name) or name in needed
    if requirement.specifier or requirement.url or is_brought:
        return None
    release = _with_release(name, variant)
    return release if release != name else None


def _with_release(name: str, variant: Variant) -> str:
    """Adds the versions of a companion that belong to the TensorFlow release."""
    tables = load_tables()
    minor = ".".join(variant.tensorflow.split(".")[:2])
    if name == "keras":
        return name if _brings_keras(variant) else _KERAS_BEFORE[minor[0]]
    if tables["companions"].get(name) == "minor":
        return f"{name}=={minor}.*"
    for version, limit in tables["companion_rows"].get(name, ()):
        if Requirement(f"tensorflow{limit}").specifier.contains(variant.tensorflow):
            return f"{name}=={version}.*"
    return name


def _is_listed(module: str, has: set[str]) -> bool:
    """Says whether a listed package has about the name of an import."""
    plain = canonicalize_name(module)
    return plain in has or any(name.startswith((f"{plain}-", f"python-{plain}", f"py{plain}")) for name in has)


def _names_of_code(project: Project, listings: tuple[Listing, ...]) -> frozenset[str]:
    """Returns the modules of folders that the listing names, such as `-e ../common`."""
    try:
        code = list_code(read_requirement_files(project.folder, listings[0].file)) if listings else ()
    except InputError:
        return frozenset()
    tops = [project.folder / source.path / inner for source in code if not source.is_git for inner in ("", "src")]
    return frozenset(path.stem for top in tops if top.is_dir() for path in top.iterdir())
