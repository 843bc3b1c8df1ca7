"""Makes sure that a spec's lock is current, and reads the digests of the base images for a new lock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.errors import ImgtoolError, InputError, RegistryRefusedError, TemporaryError
from training_imgtool.base.progress import Note, Progress
from training_imgtool.base.reference import Digest, Tag, parse_reference
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import Lock, LockedVariant
from training_imgtool.resolve.lock.lockfile import (
    LockIdentity,
    dump_lock,
    identify_lock,
    list_changed,
    read_lock,
)
from training_imgtool.resolve.lock.parse import DamagedLockError

if TYPE_CHECKING:
    from training_imgtool.oci.machine import Machine
    from training_imgtool.oci.registry.connect import Registries
    from training_imgtool.resolve.lock.archives import Built
    from training_imgtool.resolve.lock.carry_over import Renewal


@dataclass(frozen=True, slots=True)
class BaseMove:
    """A base, the digest that the lock had for a platform, and the digest that the tag has now."""

    base: str
    platform: str
    was: str
    now: str

    @property
    def state(self) -> str:
        """`moved` or `unchanged`."""
        return "unchanged" if self.was == self.now else "moved"


def ensure_lock(
    spec_file: SpecFile,
    machine: Machine,
    *,
    locked: bool = False,
    renewal: Renewal | None = None,
    write: bool = True,
    built: Built | None = None,
) -> Lock:
    """Returns the spec's lock if it is current; otherwise makes a new lock and writes it beside the spec.

    A new lock keeps those versions and base images of the old lock that still fit the spec.

    Args:
        spec_file: the spec.
        machine: the machine that makes the lock; its progress gets a line per change.
        locked: raise InputError instead of making a lock.
        renewal: what to resolve again even if the lock is current; a renewal also replaces a damaged lock.
        write: whether to write a new lock beside the spec.
        built: the wheels that earlier calls built from source archives; this call adds its own.
    """
    identity, progress = identify_lock(spec_file), machine.progress
    path = identity.path
    present = _read_present(path, progress, replace=renewal is not None)
    if present is not None and present.inputs == identity.inputs and not renewal:
        _require_roles(present, spec_file, path)
        if renewal is not None:
            progress(Note(f"{path} is current; --upgrade takes newer versions and bases"))
        return present
    what = _describe(present, identity)
    if locked:
        hint = f"run `imgtool lock`{_with_this_set(spec_file)}"
        raise InputError(f"{path} {what}, and --locked forbids writing it", hint=f"{hint}, then commit it")
    if not write:
        progress(Note(f"{path} {what}; `imgtool lock`{_with_this_set(spec_file)} writes it"))
    elif present is not None and not renewal:
        progress(Note(f"{path} {what}"))
    lock = _make_lock(spec_file, machine, present=present, renewal=renewal, built=built)
    if not write:
        return lock
    if lock == present:
        progress(Note(f"{path} stays as it is: nothing newer fits"))
        return lock
    from training_imgtool.base.atomic_files import write_atomic

    write_atomic(path, dump_lock(lock).encode())
    progress(Note(f"{'renewed' if present else 'wrote'} {path}"))
    for note in _upgrade_notes(present, lock) if present is not None else ():
        progress(Note(note))
    return lock


def upgrade_bases(spec_file: SpecFile, machine: Machine) -> tuple[Lock, tuple[BaseMove, ...]]:
    """Writes the digests that the bases' tags have now into the spec's lock; the wheels stay to the byte.

    The Debian packages on a base that has moved are resolved again. Returns the lock, and a row per base.

    Raises InputError if the lock is missing or out of date, and what `digest_of` and `lock_debian` raise.
    """
    from training_imgtool.base.atomic_files import write_atomic
    from training_imgtool.plan.debian_stage import lock_debian

    identity, spec = identify_lock(spec_file), spec_file.spec
    before = _read_present(identity.path, machine.progress, replace=False)
    if before is None or before.inputs != identity.inputs:
        hint = "run `imgtool lock` first, which keeps the bases that the lock has"
        raise InputError(f"{identity.path} {_describe(before, identity)}, so it has no bases to upgrade", hint=hint)
    was = {row.variant.base: row.base_digest for row in before.variants}
    moves = {
        base: BaseMove(base, spec.platform, was[base], digest_of(base, spec.platform, machine.registries))
        for base in was
    }

    def upgrade(row: LockedVariant) -> LockedVariant:
        digest = moves[row.variant.base].now
        if digest == row.base_digest:
            return row
        return replace(row, base_digest=digest, debian=lock_debian(row.variant, digest, spec=spec, machine=machine))

    after = replace(before, variants=tuple(map(upgrade, before.variants)))
    if after != before:
        write_atomic(identity.path, dump_lock(after).encode())
    return after, tuple(moves.values())


def _require_roles(lock: Lock, spec_file: SpecFile, path: Path) -> None:
    lacking = spec_file.spec.roles.keys() - {role for row in lock.variants for role in row.variant.roles}
    if lacking:
        raise DamagedLockError(f"{path}: the lock has no variant for {', '.join(sorted(lacking))}")


def _describe(present: Lock | None, identity: LockIdentity) -> str:
    if present is None:
        return "is missing"
    changed = list_changed(present.inputs, identity.inputs)
    return f"is out of date: {', '.join(changed)} changed" if changed else "is current"


def _with_this_set(spec_file: SpecFile) -> str:
    return " with this --set" if spec_file.values.keys() - {"platform"} else ""


def _upgrade_notes(before: Lock, after: Lock) -> tuple[str, ...]:
    """Returns notes on what changes between the frameworks of two locks, such as Keras 3 since TensorFlow 2.16."""
    from training_imgtool.resolve.frameworks import rules_of
    from training_imgtool.resolve.versions.matrix import load_matrix

    old, new = ({row.variant.name: row.variant for row in lock.variants} for lock in (before, after))
    pairs = {
        (old[name].release, variant.release, variant.framework.key)
        for name, variant in new.items()
        if name in old and old[name].framework is variant.framework
    }
    matrix = load_matrix()
    notes = (note for *two, key in sorted(pairs) for note in rules_of(FRAMEWORKS[key]).notes_between(matrix, *two))
    return tuple(dict.fromkeys(notes))


def _read_present(path: Path, progress: Progress, *, replace: bool) -> Lock | None:
    """Reads the lock beside the spec; None if there is no lock, or if the lock is damaged and `replace` is set."""
    if not path.exists():
        return None
    try:
        return read_lock(path)
    except DamagedLockError as error:
        text = path.read_text(errors="replace")
        if text.strip() and "imgtool" not in text:  # the first line of a lock contains it, even after a merge conflict
            hint = f"give the spec another name than {path.stem}: its lock has the same name"
            raise InputError(
                f"{path} is a lock of another program, which imgtool does not replace", hint=hint
            ) from error
        if not replace:
            raise
        progress(Note(f"{error}; imgtool makes a new one"))
        return None


def _make_lock(
    spec_file: SpecFile,
    machine: Machine,
    *,
    present: Lock | None,
    renewal: Renewal | None,
    built: Built | None,
) -> Lock:
    from training_imgtool.model.secrets import with_index_logins
    from training_imgtool.plan.debian_stage import lock_debian
    from training_imgtool.resolve.lock.carry_over import NOTHING_CARRIED_OVER, Renewal
    from training_imgtool.resolve.lock.update import make_lock
    from training_imgtool.resolve.versions.matrix import load_matrix

    platform = spec_file.spec.platform
    carried_over = (renewal or Renewal()).carry_over(present, platform) if present else NOTHING_CARRIED_OVER

    def base_digest(reference: str) -> str:
        return digest_of(reference, platform, machine.registries)

    return make_lock(
        spec_file,
        load_matrix(),
        base_digest,
        with_index_logins(spec_file, machine.settings),
        machine.progress,
        carried_over=carried_over,
        lock_debian=partial(lock_debian, spec=spec_file.spec, machine=machine),
        built=built,
    )


def digest_of(reference: str, platform: str, registries: Registries) -> str:
    """Returns the digest (`sha256:…`) of the image that `reference` names for `platform`, read through the mirrors.

    For an index, returns the digest of the image for `platform`, so that every builder sees the same image. Raises
    RegistryRefusedError if there is no such image, InputError if the image is for another platform, and what reading a
    manifest raises.
    """
    from training_imgtool.oci.registry.manifests import require_platform

    name = parse_reference(reference)
    source = registries.source(name.repository)
    there: Tag | Digest = source.tag(name.name) if isinstance(name, Tag) else source.digest(name.digest)
    try:
        there_now = registries.at(source).head(there)
    except TemporaryError as error:
        hint = "; ".join(filter(None, (error.hint, "IMGTOOL_MIRRORS names a registry that has it")))
        raise TemporaryError(f"base image {there}: {error.message}", hint=hint, details=error.details) from error
    if there_now is None:
        raise RegistryRefusedError(
            f"base image {there}: the registry has no such image",
            hint="give another `base:` (`imgtool compat` lists bases), or a mirror with this image in IMGTOOL_MIRRORS",
        )
    manifest = registries.at(source).manifest(there, platform)
    require_platform(registries.at(source).read(there.repository, manifest.config), platform, f"base image {there}")
    return manifest.digest


def find_moved_bases(locks: Iterable[Lock], registries: Registries) -> dict[str, str]:
    """Maps each locked base whose tag is gone or has moved to another image to a description of the change.

    The result leaves out the bases of a registry that does not answer.
    """
    moved = {}
    rows = {(row.variant.base, row.base_digest, lock.platform) for lock in locks for row in lock.variants}
    for base, digest, platform in sorted(rows):
        if isinstance(tag := parse_reference(base), Tag):
            answer = _ask_again(tag, platform, registries)
            if answer not in {None, digest}:
                moved[base] = f"the lock has {digest}, the registry answers {answer}"
    return moved


def _ask_again(tag: Tag, platform: str, registries: Registries) -> str | None:
    from training_imgtool.oci.registry.manifests import NoPlatformError

    source = registries.source(tag.repository)
    try:
        if registries.at(source).head(source.tag(tag.name)) is None:
            return "no such tag any more"
        return digest_of(str(tag), platform, registries)
    except (InputError, NoPlatformError) as error:  # the tag's image no longer has the platform
        return error.message
    except ImgtoolError:
        return None
