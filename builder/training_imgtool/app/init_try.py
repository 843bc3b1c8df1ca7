"""`imgtool init`: locks a proposed spec; with `--try`, also starts the program and adds missing packages."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from imgtool_project_reader.packages import Concessions
from imgtool_project_reader.tables import find_distribution, load_tables
from training_imgtool.app.init import Written
from training_imgtool.app.init_lock import add_libraries, check_proposal, lock_proposal
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import LogLine, Note, Progress
from training_imgtool.base.sanitize import sanitize_line
from training_imgtool.model.load import own_spec
from training_imgtool.model.spec import Role
from training_imgtool.resolve.wheels.libraries import name_packages

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine

_SECONDS = 30.0  # a program that runs for so long can start
_SECONDS_IN_SILENCE = 120.0  # on a busy machine, importing TensorFlow takes longer than _SECONDS
_LINES = 12
_MOST_ROUNDS = 10
_MODULE = re.compile(r"No module named '?(?P<name>[A-Za-z_][\w.]*)'?")
_RAISED = re.compile(r"Traceback|[\w.]*(?:Error|Exception)(?::|$)")  # the first line may be missing
_NO_HELP = re.compile(r"(?i)(?:unknown|unrecognized|no such|invalid)\b.{0,40}\bhelp\b")
_LIBRARY = re.compile(r"(?P<name>lib[\w.+-]+?\.so(?:\.\d+)*): cannot open shared object file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of starting the program.

    Attributes:
        ended: how the program ended, such as `exit 1`, or that it still ran.
        lines: the last lines that the program printed.
        failed: whether the program ended by itself with a code other than 0.
        has_ended: whether the program ended by itself.
    """

    ended: str
    lines: tuple[str, ...]
    failed: bool
    has_ended: bool = True

    @property
    def lacks(self) -> str | None:
        """The name of the module that the program could not import; None if the program did not fail so."""
        found = [match["name"] for line in self.lines if (match := _MODULE.search(line))]
        return found[-1] if found and self.failed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A proposed spec that imgtool has written, with a lock if the user wanted one.

    Attributes:
        written: the files.
        trial: the result of starting the program.
        trouble: why the program cannot start, as far as its code shows.
        error: why imgtool could not lock the proposal, or start the program.
    """

    written: Written
    trial: Trial | None = None
    trouble: str | None = None
    error: ImgtoolError | None = None


def adopt(
    folder: Path,
    propose: Callable[..., Written],
    machine: Machine,
    *,
    force: bool,
    lock: bool | None,
    attempt: bool,
) -> Adopted:
    """Writes and locks a proposed spec; with `attempt`, also starts the program and adds missing packages.

    Args:
        folder: the folder of the project.
        propose: writes the spec.
        machine: the machine; its progress gets a note for each package that imgtool leaves out or adds.
        force: whether to replace an existing spec.
        lock: whether to lock the spec; None means yes if the folder has a program.
        attempt: whether to start the program, too.

    Raises:
        InputError, LocalFileError: the spec could not be written.
    """
    new = propose(force=force)
    starts = new.proposal.placement is not None
    if new.diff is not None or not (attempt or (starts if lock is None else lock)):
        return Adopted(written=new)
    last = [new]  # of proposals, each after a lock or a start of the program

    def write(given: Concessions) -> Written:
        last.append(propose(force=True, concessions=given))
        return last[-1]

    def settle(known: Concessions) -> Concessions:
        found = lock_proposal(folder, write, machine, concessions=known)
        more = add_libraries(check_proposal(folder, machine), found)
        return lock_proposal(folder, write, machine, concessions=more) if more else found

    trial, trouble, made = None, None, new.proposal
    source = made.program.source if made.placement and made.program else None
    try:
        if attempt and (source or not made.has_code):
            start = partial(start_program, folder, machine)
            has_options = bool(source and source.options)
            trial = try_proposal(settle, partial(start_usefully, start, with_help=has_options), machine.progress)
        else:
            settle(Concessions())
            found = check_proposal(folder, machine)
            trouble = str(found) if found else None
    except ImgtoolError as error:
        return Adopted(written=replace(last[-1], paths=new.paths), error=error)
    paths = (*new.paths, own_spec(folder).with_suffix(".lock"))
    return Adopted(written=replace(last[-1], paths=paths), trial=trial, trouble=trouble)


def try_proposal(lock: Callable[[Concessions], Concessions], start: Callable[[], Trial], progress: Progress) -> Trial:
    """Locks the proposed spec and starts the program, until the program runs or imgtool finds no package to add.

    Args:
        lock: writes and locks the proposal with these concessions, and returns all concessions.
        start: starts the program.
        progress: receives a note per added package.
    """
    concessions = lock(Concessions())
    trial = start()
    for _ in range(_MOST_ROUNDS):
        mended = mend(trial, concessions)
        if mended is None:
            break
        for before, after in ((concessions.added, mended.added), (concessions.system, mended.system)):
            for name in after.keys() - before.keys():
                progress(Note(f"{name} is added: {after[name]}"))
        concessions = lock(mended)
        trial = start()
    return trial


def mend(trial: Trial, concessions: Concessions) -> Concessions | None:
    """Adds the package that the program's last lines show to be missing; returns None if imgtool finds none."""
    if not trial.failed:
        return None
    tables = load_tables()
    for line in reversed(trial.lines):
        why = f"the program said: {line.strip()[:160]}"
        if library := _LIBRARY.search(line):
            package = next(iter(name_packages(library["name"])), None)
            if package and package not in concessions.system:
                return replace(concessions, system={**concessions.system, package: why})
        module = _MODULE.search(line)
        needed = find_distribution(module["name"]) if module else None
        said = (requirement for text, requirement in tables["cures"].items() if text in line)
        for requirement in (*said, *([needed] if needed else [])):
            if requirement not in {*concessions.added, *concessions.left_out}:
                return replace(concessions, added={**concessions.added, requirement: why})
    return None


def start_usefully(start: Callable[..., Trial], *, with_help: bool) -> Trial:
    """Starts a program, again without `--help` if the program refuses it, and for longer if nothing is printed."""
    trial = start(with_help=with_help)
    if trial.failed and with_help and any(map(_NO_HELP.search, trial.lines)):
        with_help, trial = False, start(with_help=False)
    return trial if trial.lines or trial.has_ended else start(with_help=with_help, seconds=_SECONDS_IN_SILENCE)


def start_program(folder: Path, machine: Machine, *, with_help: bool, seconds: float = _SECONDS) -> Trial:
    """Runs only the master's image, with the argument `--help` if `with_help`, and ends the program after `seconds`.

    Raises:
        ImgtoolError: imgtool cannot make the image, or the engine does not answer.
    """
    from training_imgtool.app.images import run_images
    from training_imgtool.local.ready import Ready, Request
    from training_imgtool.local.rehearsal import Kill
    from training_imgtool.local.replicas import Service
    from training_imgtool.plan.project_files import SpecChoice

    lines: deque[str] = deque(maxlen=_LINES)

    @contextmanager
    def view() -> Iterator[Progress]:
        yield machine.progress

    @contextmanager
    def kept(_: Ready) -> Iterator[Progress]:
        yield lambda event: lines.append(sanitize_line(event.text)) if isinstance(event, LogLine) else None

    opened: Callable[[], AbstractContextManager[Progress]] = view
    with TemporaryDirectory(prefix="imgtool-try-") as job_dir:
        request = Request(
            service=Service.LOCAL,
            workers=0,
            ps=0,
            args=("--help",) if with_help else None,
            job_dir=Path(job_dir),
            kills=(Kill(role=Role.MASTER, index=0, seconds=seconds),),
        )
        summary = run_images(SpecChoice(path=own_spec(folder)), request, machine.settings, opened, kept)
    death = summary.deaths[0] if summary.deaths else None
    last = summary.failure.last_lines if summary.failure else ()
    if death and death.rehearsed:
        return Trial(ended=f"it still ran after {seconds:.0f} s", lines=tuple(lines), failed=False, has_ended=False)
    ended = f"exit {death.exit_code}" if death else "exit 0"
    return Trial(ended=ended, lines=last or tuple(lines), failed=bool(death) and not (with_help and is_help(last)))


def is_help(lines: tuple[str, ...]) -> bool:
    """Returns whether a program's last lines are its help. Programs that use absl print help and end with code 1."""
    return "--" in " ".join(lines) and not any(map(_RAISED.match, lines))
