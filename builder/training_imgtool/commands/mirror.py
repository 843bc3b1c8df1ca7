"""`imgtool mirror`: copies the bases of a lock to a registry of the user's, and its wheels into a folder.

`--wheels` puts each wheel and Debian package there under its own name; UV_FIND_LINKS then names the folder, or a page
that lists it. A Debian package's name there has its hash, because Debian and Ubuntu give different packages the same
name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from training_imgtool.core.atomic_files import hold_lock
from training_imgtool.core.errors import LocalFileError, UsageError, VerificationError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.reference import Digest, InvalidReferenceError, Tag, parse_reference, parse_repository
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import run_all
from training_imgtool.debian.store import PackageStore, name_copy
from training_imgtool.pipeline.debian_stage import open_store
from training_imgtool.pipeline.run_wheels import open_spec_wheels, read_linked_packages
from training_imgtool.plan import Lock, LockedVariant
from training_imgtool.registry.client import Registry
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.registry.manifests import Manifest, index_body, index_entry
from training_imgtool.spec.load import SpecFile
from training_imgtool.wheels.store import WheelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredBase:
    """A base image, and its copy."""

    base: str
    copy: Digest


def mirror_bases(lock: Lock, settings: Settings, target: str, progress: Progress) -> tuple[MirroredBase, ...]:
    """Copies each base of the lock to `target` (`HOST[:PORT][/PREFIX]`) by digest, and gives the copy the base's tag.

    Where the tag names an image for another platform already, it names an index of both then. Blobs stream from one
    registry to the other; nothing is written to disk. A copy keeps the path of its repository, so that
    IMGTOOL_MIRRORS=HOST=TARGET reads it. Raises what reading and writing a registry raise.
    """
    bases = {locked.variant.base: locked for locked in lock.variants}
    with connect(settings, progress) as registries:
        copies = run_all(
            {name: partial(_mirror_base, locked, registries, target, progress) for name, locked in bases.items()}
        )
    return tuple(MirroredBase(base=name, copy=copy) for name, copy in copies.items())


def _mirror_base(locked: LockedVariant, registries: Registries, target: str, progress: Progress) -> Digest:
    base = parse_reference(locked.variant.base)
    source = registries.source(base.repository)
    copy = parse_repository(f"{target.rstrip('/')}/{base.repository.path}")
    manifest = registries.at(source).manifest(source.digest(locked.base_digest))
    blobs = {blob.digest: blob for blob in (manifest.config, *manifest.layers)}
    subject = f"base {base.repository.path}"
    run_all(
        {
            digest: partial(registries.copy_blob, source, blob, copy, subject=subject, progress=progress)
            for digest, blob in blobs.items()
        }
    )
    reference = copy.digest(locked.base_digest)
    registry = registries.at(copy)
    registry.put_manifest(reference, manifest.media_type, manifest.body, confirm=True)
    if isinstance(base, Tag):
        _tag_copy(registry, copy.tag(base.name), manifest)
    return reference


def _tag_copy(registry: Registry, tag: Tag, copy: Manifest) -> None:
    """Lets a tag name a copy beside the images for other platforms that it names already."""
    present = registry.find_manifest(tag)
    if present is not None and present.digest == copy.digest:
        return
    entry = _entry(registry, tag, copy)
    entries = () if present is None else _entries(registry, tag, present)
    others = [other for other in entries if other.get("platform") != entry["platform"]]
    media_type, body = index_body([*others, entry]) if others else (copy.media_type, copy.body)
    registry.put_manifest(tag, media_type, body)


def _entries(registry: Registry, tag: Tag, present: Manifest) -> tuple[dict[str, Any], ...]:
    if not present.is_index:
        return (_entry(registry, tag, present),)
    return tuple(present.document["manifests"])


def _entry(registry: Registry, tag: Tag, image: Manifest) -> dict[str, Any]:
    return index_entry(image, json.loads(registry.read(tag.repository, image.config)))


def mirror_setting(bases: tuple[MirroredBase, ...], target: str) -> str:
    """Makes the value of IMGTOOL_MIRRORS that reads the copies."""
    hosts = dict.fromkeys(parse_reference(base.base).repository.registry for base in bases)
    return ",".join(f"{host}={target.rstrip('/')}" for host in hosts)


def check_target(text: str) -> str:
    """Returns the place that `--to` names, without a slash at its end; raises UsageError for one of no registry."""
    place = text.rstrip("/")
    try:
        parse_repository(f"{place}/base")
    except InvalidReferenceError as error:
        raise UsageError(f"--to: {error}", hint="give HOST[:PORT][/PATH]") from error
    return place


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
    """Says whether a file is there; raises UsageError if it is another one, which somebody may need."""
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
