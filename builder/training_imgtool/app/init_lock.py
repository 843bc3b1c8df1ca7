"""`imgtool init --lock`: locks a proposed spec, and drops requirements that no wheel on the index satisfies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from imgtool_project_reader.frameworks import TENSORFLOW, Framework
from imgtool_project_reader.packages import Concessions
from imgtool_project_reader.tables import find_distribution
from training_imgtool.app.init import Written
from training_imgtool.base.errors import FieldListError, ImgtoolError, InputError
from training_imgtool.base.progress import Note
from training_imgtool.make.library_check import MissingLibraryError
from training_imgtool.make.trainer_check import check_trainer
from training_imgtool.model.load import SpecFile, load, own_spec
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.current_lock import ensure_lock
from training_imgtool.plan.inputs import prepare

_MOST_ROUNDS = 20
_MOST_PER_CAUSE = 2
_FROZEN = 30  # pins, from which on a list probably contains everything that a machine had
_NO_WHEEL = re.compile(r"no wheel of (?P<names>[\w.-]+(?:, [\w.-]+)*) fits")
_REQUIRED = re.compile(r"you require (?P<lines>\S+(?: and (?!you )\S+(?=[,.;]| and |$))*)")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9](?:[\w.-]*\w)?)(?:\[[^\]]*\])?(?P<limit>[=<>!~])?")
_NEEDED = re.compile(r"depends? on (?P<name>[A-Za-z0-9][\w.-]*)")
_FIGHTS = re.compile(r": (?P<names>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:[=<>!~]\S*)? (?P<why>fights .+?)(?= \(|$)")
_EDGE = re.compile(r"([A-Za-z0-9][\w.-]*)(?:[=<>!~]\S*)? depends? on ([A-Za-z0-9][\w.-]*)")
_UNKNOWN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*) was not found in the (?:package registry|provided)")
_UNFIT = re.compile(r"\b(?P<name>[A-Za-z0-9][\w.-]*) (?P<version>\d[\w.]*) requires Python")
_NO_DEBIAN = re.compile(r"(?:Unable to locate package |Package ')(?P<name>[a-z0-9][a-z0-9+.-]*[a-z0-9+])")
_BUILT = re.compile(r"Failed to (?:download and )?build `(?P<name>[A-Za-z0-9][\w.-]*) @")

Propose = Callable[[Concessions], Written]


def lock_proposal(
    folder: Path,
    propose: Propose,
    machine: Machine,
    *,
    lock: Callable[[SpecFile, Machine], object] | None = None,
    concessions: Concessions | None = None,
) -> Concessions:
    """Writes a proposed spec and its lock, and returns the concessions: the limits and packages that do not fit.

    Args:
        folder: the folder of the spec.
        propose: writes the spec with these concessions.
        machine: the machine, whose progress gets a note per concession.
        lock: makes a spec's lock; by default `ensure_lock`, which builds each source archive once in all rounds.
        concessions: the concessions so far.
    """
    lock = lock or partial(ensure_lock, built={})
    first = concessions = concessions or Concessions()
    for _ in range(_MOST_ROUNDS):
        written = propose(concessions)
        try:
            lock(load(own_spec(folder)), machine)
        except InputError as error:
            wanted = _list_wanted(written)
            spared = _list_wanted(written, also=True) if _is_frozen(written) else None
            own = written.proposal.choice.framework
            conceded = concede(error, concessions, wanted=wanted, spared=spared, framework=own)
            if conceded is None:
                if concessions != first:
                    propose(first)  # what changed since then did not help
                raise
            for before, after, what in (
                (concessions.loosened, conceded.loosened, "its limit is left out"),
                (concessions.left_out, conceded.left_out, "it is left out"),
                (concessions.added, conceded.added, "it is added"),
                (concessions.absent, conceded.absent, "it is left out"),
            ):
                for name in after.keys() - before.keys():
                    machine.progress(Note(f"{name}: {after[name]}: {what}"))
            concessions = conceded
            continue
        return concessions
    raise InputError(f"image.yaml does not lock after {_MOST_ROUNDS} changes", hint="complete image.yaml by hand")


def check_proposal(folder: Path, machine: Machine) -> ImgtoolError | None:
    """Returns why the program cannot start with the locked packages, as far as the code shows; None if it can."""
    try:
        check_trainer(prepare(load(own_spec(folder)), machine), machine)
    except ImgtoolError as error:
        return error
    return None


def add_libraries(trouble: ImgtoolError | None, concessions: Concessions) -> Concessions | None:
    """Adds the Debian packages of the libraries that the program's imports miss; None if no library is missing."""
    errors = trouble.errors if isinstance(trouble, FieldListError) else ()
    system = {
        package: error.message
        for error in errors
        if isinstance(error, MissingLibraryError)
        for package in error.packages
    }
    if not system.keys() - concessions.system.keys():
        return None
    return replace(concessions, system={**concessions.system, **system})


def concede(
    error: InputError,
    concessions: Concessions,
    *,
    wanted: frozenset[str] = frozenset(),
    spared: frozenset[str] | None = None,
    framework: Framework = TENSORFLOW,
) -> Concessions | None:
    """Adds the next concession (a limit or package to drop) that the resolver's message suggests; None if none is left.

    This function drops limits before packages, and first the limits that contradict another package. The packages in
    `wanted`, which the program imports, are dropped last. `spared` is given if the requirements list all packages of a
    machine; then a package outside `spared` is dropped at once, because packages that need such a package install it.
    For a package without a wheel, only that package and one that needs it are dropped. `framework` stays.
    """
    text = " ".join(" ".join((error.message, *error.details)).split())
    named = _NO_WHEEL.search(text) or _BUILT.search(text) or _FIGHTS.search(text)
    names = [canonicalize_name(name) for name in named[1].split(", ")] if named else []
    lines = [_LINE.match(line) for match in _REQUIRED.finditer(text) for line in match["lines"].split(" and ")]
    required = {canonicalize_name(line["name"]): line["limit"] for line in lines if line}
    unknown = {canonicalize_name(match["name"]) for match in _UNKNOWN.finditer(text)} & {*required}
    if unknown - concessions.left_out.keys():
        missing: dict[str, str] = dict.fromkeys(sorted(unknown), "no package of this name is on the index")
        return replace(concessions, left_out={**missing, **concessions.left_out})
    absent = {match["name"]: "the base's archives have no such package" for match in _NO_DEBIAN.finditer(text)}
    if absent.keys() - concessions.absent.keys():
        return replace(concessions, absent={**concessions.absent, **absent})
    if unfit := _UNFIT.search(text):  # the resolver ignores a wheel's upper limit on Python
        older = f"{canonicalize_name(unfit['name'])}<{unfit['version']}"
        if older not in concessions.added:
            return replace(concessions, added={**concessions.added, older: "newer ones are for another Python"})
    needed = {canonicalize_name(match["name"]) for match in _NEEDED.finditer(text)}
    reason = _reason(error, named[1] if named else "")
    needs_it = _list_chain(text, names)
    others = [name for name in reversed(required) if name in needs_it or not needs_it]
    culprits = [*dict.fromkeys(name for name in (*names, *others) if not framework.is_own(name))]
    if named and sum(why.startswith(reason) for why in concessions.left_out.values()) >= _MOST_PER_CAUSE:
        culprits = []
    if spared is not None and (idle := [name for name in culprits if name not in {*spared, *concessions.left_out}]):
        return replace(concessions, left_out={**concessions.left_out, idle[0]: f"{reason}; the program imports none"})
    loose = sorted(culprits, key=lambda name: (name not in names, not required.get(name), name not in needed))
    if limited := [name for name in loose if name not in concessions.loosened]:
        return replace(concessions, loosened={**concessions.loosened, limited[0]: reason})
    rest = sorted(culprits, key=lambda name: (name not in names, name in wanted))
    kept = [name for name in rest if name not in concessions.left_out]
    return replace(concessions, left_out={**concessions.left_out, kept[0]: reason}) if kept else None


def _list_chain(text: str, names: Iterable[str]) -> set[str]:
    """Returns the packages that need one of `names`, directly or through others, as far as the resolver says."""
    edges = {tuple(map(canonicalize_name, match.groups())) for match in _EDGE.finditer(text)}
    found: set[str] = {*names}
    while more := {parent for parent, child in edges if child in found} - found:
        found |= more
    return found - {*names}


def _list_wanted(written: Written, *, also: bool = False) -> frozenset[str]:
    """Returns the packages that the program always imports; with `also`, those also that it sometimes imports."""
    reached = written.proposal.reached
    found = {item.module for item, _, always in reached.foreign if always or also} if reached else set()
    tops = {module.partition(".")[0] for module in found}
    return frozenset(canonicalize_name(name) for name in {*map(find_distribution, found), *tops} if name)


def _is_frozen(written: Written) -> bool:
    return sum("==" in line.text for line in written.proposal.needs.lines) >= _FROZEN


def _reason(error: InputError, name: str) -> str:
    """Returns the cause of a failed resolution in a few words."""
    inner = re.search(r"\((?P<why>[^()]*(?:compiler|build)[^()]*)\)", error.message)
    if inner:
        return inner["why"].strip()
    if fight := _FIGHTS.search(error.message):
        return f"it {fight['why']}"
    return f"no wheel of {name} fits" if name else "it does not fit what other packages require"
