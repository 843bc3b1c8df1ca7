"""`imgtool mirror --wheels`: copies the wheels and Debian packages of a lock into one folder, each under its own name.

UV_FIND_LINKS then names the folder, or a page that lists it. A Debian package's name there has its hash, because Debian
and Ubuntu give different packages the same name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.core.atomic_files import hold_lock
from training_imgtool.core.errors import LocalFileError, UsageError, VerificationError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import parse_repository
from training_imgtool.core.settings import Settings
from training_imgtool.debian.store import PackageStore, name_copy
from training_imgtool.pipeline.debian_stage import open_store
from training_imgtool.pipeline.run_wheels import open_spec_wheels, read_linked_packages
from training_imgtool.plan import Lock, LockedVariant
from training_imgtool.spec.load import SpecFile
from training_imgtool.wheels.store import WheelStore

_BLOCK = 1 << 20
_PART = ".imgtool-mirror.part"  # one name, so that a killed run leaves at most one file, which the next run takes


@dataclass(frozen=True, slots=True)
class MirroredFiles:
    """The names of a folder's files that a lock names; `+` leaves each name out that is there already."""

    wheels: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()

    def __add__(self, other: MirroredFiles) -> MirroredFiles:
        return MirroredFiles(
            tuple(dict.fromkeys((*self.wheels, *other.wheels))), tuple(dict.fromkeys((*self.debian, *other.debian)))
        )


def mirror_files(
    spec_file: SpecFile, lock: Lock, folder: Path, settings: Settings, progress: Progress
) -> MirroredFiles:
    """Puts every wheel and Debian package of a spec's lock into `folder`. A file that is there already stays.

    Raises:
        UsageError: the folder has another file of the name.
        VerificationError: a file of the cache is damaged; imgtool removed it.
        LocalFileError: the folder cannot be written. No partial file is left.
        ImgtoolError: what fetching raises.
    """
    registry = settings.registry or spec_file.spec.registry
    repository = parse_repository(f"{registry.rstrip('/')}/{spec_file.spec.name}") if registry else None
    wheels = open_spec_wheels(spec_file, repository, settings)
    linked = read_linked_packages(spec_file, settings, progress)
    with _open_folder(folder, progress):
        return MirroredFiles(
            mirror_wheels(lock, folder, wheels, progress),
            mirror_debian(lock, folder, lambda locked: open_store(locked, settings, progress, linked), progress),
        )


@contextmanager
def _open_folder(folder: Path, progress: Progress) -> Iterator[None]:
    """Makes the folder and keeps other runs from writing there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalFileError(f"{folder}: {error.strerror}", hint="--wheels names a folder") from error
    with hold_lock(folder / "mirror", lambda text: progress(Note(text))):
        yield


def mirror_wheels(lock: Lock, folder: Path, store: WheelStore, progress: Progress) -> tuple[str, ...]:
    """Puts every wheel of the lock into `folder`; returns their names. Raises as `mirror_files` does."""
    wheels = tuple(dict.fromkeys(wheel for locked in lock.variants for wheel in (*locked.wheels, locked.installer)))
    missing = [wheel for wheel in wheels if not _is_there(folder / wheel.file, wheel.sha256)]
    store.fetch(missing, progress)
    for wheel in missing:
        _copy(store.require(wheel), folder / wheel.file, wheel.sha256)
    return tuple(wheel.file for wheel in wheels)


def mirror_debian(
    lock: Lock, folder: Path, open_packages: Callable[[LockedVariant], PackageStore], progress: Progress
) -> tuple[str, ...]:
    """Puts every Debian package of the lock into `folder`; returns their names. Raises as `mirror_files` does."""
    names: list[str] = []
    for locked in lock.variants:
        if locked.debian is None:
            continue
        if locked.debian.engine:
            engine = "an engine installs the Debian packages, so the lock has none to copy"
            progress(Note(f"{locked.variant.name}: {engine}: {locked.debian.engine}"))
            continue
        store = open_packages(locked)
        packages = {name_copy(package): package for package in locked.debian.packages}
        missing = {name: row for name, row in packages.items() if not _is_there(folder / name, row.sha256)}
        store.fetch(tuple(missing.values()))
        for name, package in missing.items():
            _copy(store.path(package), folder / name, package.sha256)
        names += packages
    return tuple(dict.fromkeys(names))


def _is_there(path: Path, sha256: str) -> bool:
    """Whether a file is there; raises UsageError if it is another one, which somebody may need."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LocalFileError(f"{path}: {error.strerror}") from error
    if digest != sha256:
        raise UsageError(
            f"{path} is another file than the lock's: its sha256 is {digest}, expected {sha256}",
            hint="give another folder (UV_FIND_LINKS takes several, with commas), or delete this file",
        )
    return True


def _copy(source: Path, target: Path, sha256: str) -> None:
    part, digest = target.with_name(_PART), hashlib.sha256()
    try:
        try:
            with source.open("rb") as content, part.open("wb") as copy:
                while block := content.read(_BLOCK):
                    digest.update(block)
                    copy.write(block)
                copy.flush()
                os.fsync(copy.fileno())
            if digest.hexdigest() != sha256:
                source.unlink(missing_ok=True)
                raise VerificationError(f"{source}: damaged, removed", hint="run the command again")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise LocalFileError(f"{target}: {error.strerror}", hint="--wheels names another folder") from error
