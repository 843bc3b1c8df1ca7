"""`imgtool lock`: resolves a spec for each of its platforms, and checks the job and the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.jobs import check_job
from training_imgtool.make.trainer_check import check_trainer
from training_imgtool.model.lock import Lock
from training_imgtool.oci.machine import Machine
from training_imgtool.plan.current_lock import BaseMove, ensure_lock, find_moved_bases, upgrade_bases
from training_imgtool.plan.inputs import prepare
from training_imgtool.plan.project_files import SpecChoice
from training_imgtool.resolve.lock.carry_over import Renewal
from training_imgtool.resolve.lock.lockfile import lock_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The locks of a spec, one per platform.

    Attributes:
        paths: the lock files, in the same order.
        moved: for a base whose tag has moved since the lock was made, what the tag names now.
        bases: the bases that a renewal of the bases alone has looked up.
    """

    locks: tuple[Lock, ...]
    paths: tuple[Path, ...]
    moved: Mapping[str, str]
    bases: tuple[BaseMove, ...] = ()


def renew_locks(choice: SpecChoice, renewal: Renewal, machine: Machine, *, check: bool) -> Locked:
    """Makes or renews the locks of a spec; with `choice.locked`, only checks that they are current.

    Raises the errors of reading the spec, of resolving, and with `check` those of checking the job and the trainer.
    """
    spec_file = choice.open()
    if check:
        check_job(spec_file)
    wanted = None if choice.locked else renewal
    files = [spec_file.for_platform(platform) for platform in spec_file.platforms]
    bases: tuple[BaseMove, ...] = ()
    if renewal.bases:
        pairs = [upgrade_bases(file, machine) for file in files]
        locks, bases = tuple(lock for lock, _ in pairs), tuple(move for _, moves in pairs for move in moves)
    else:
        locks = tuple(ensure_lock(file, machine, locked=choice.locked, renewal=wanted) for file in files)
    moved = {} if choice.locked or renewal.bases else find_moved_bases(locks, machine.registries)
    if check:
        check_trainer(prepare(spec_file, machine), machine)
    return Locked(locks=locks, paths=tuple(map(lock_path, files)), moved=moved, bases=bases)
