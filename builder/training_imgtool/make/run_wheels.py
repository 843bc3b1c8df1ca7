"""Opens the machine's store of wheels, and makes the build context with wheels.

imgtool also uploads the wheels that it built from source archives to the images' registry, so that other machines can
fetch them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from training_imgtool.base.context.context import Context
from training_imgtool.base.context.entries import Entry, Kind
from training_imgtool.base.errors import ImgtoolError
from training_imgtool.base.progress import Note
from training_imgtool.base.settings import Settings
from training_imgtool.model.lock import LockedVariant, Wheel
from training_imgtool.model.recipe import install_step

if TYPE_CHECKING:
    from training_imgtool.make.request import BuildRun
    from training_imgtool.oci.machine import Machine
    from training_imgtool.plan.inputs import Inputs
    from training_imgtool.resolve.wheels.store import WheelStore


def open_wheel_store(inputs: Inputs, settings: Settings) -> WheelStore:
    """Opens the machine's store of wheels, which fetches wheels that imgtool built from the images' registry."""
    from training_imgtool.model.requirement_files import read_texts
    from training_imgtool.model.requirements import index_options
    from training_imgtool.model.secrets import with_index_logins
    from training_imgtool.resolve.wheels.store import WheelStore

    def read(wheel: Wheel) -> Iterator[bytes] | None:
        from training_imgtool.oci.registry.connect import Registries
        from training_imgtool.oci.repository.stored_wheels import StoredWheels

        repository = inputs.target
        return StoredWheels(Registries(settings), repository).read(wheel) if repository else None

    return WheelStore(
        with_index_logins(inputs.spec_file, settings),
        read_artifact=read,
        options=lambda: index_options(inputs.spec_file.folder, read_texts(inputs.spec_file)),
    )


def check_closed(inputs: Inputs, locked: LockedVariant, settings: Settings) -> None:
    """Checks the wheels of a variant that this machine has; raises InputError if they do not fit together."""
    from training_imgtool.model.own_projects import own_names
    from training_imgtool.resolve.wheels.metadata import WheelMetadata

    own = own_names(inputs.spec_file)
    metadata = WheelMetadata(open_wheel_store(inputs, settings), settings.cache)
    metadata.check_closed(locked.wheels, locked.variant, inputs.spec.platform, own=own, everything=False)


def keep_built_wheels(run: BuildRun) -> None:
    """Uploads the wheels that this machine built to the images' registry; after a failure, sends only a note."""
    variants = {id(image.locked): image.locked for image in run.wanted}.values()
    built = {wheel.sha256: wheel for locked in variants for wheel in locked.wheels if wheel.source}
    if not built:
        return
    from training_imgtool.oci.repository.stored_wheels import StoredWheels

    store = open_wheel_store(run.inputs, run.machine.settings)
    stored = StoredWheels(run.machine.registries, run.inputs.repository)
    for wheel in built.values():
        path = store.path(wheel)
        if path is None:
            continue
        try:
            stored.keep(wheel, path)
        except ImgtoolError as error:
            run.machine.progress(Note(f"{wheel.file} is not kept in the registry, so no other machine has it: {error}"))
            return


def make_build_context(inputs: Inputs, variants: Iterable[LockedVariant], machine: Machine) -> Context:
    """Returns the build context for whole images: the spec's files below `code/`, and the variants' wheels.

    Fetches the wheels that this machine lacks; raises what fetching raises, and InputError if wheels do not fit
    together.
    """
    store = open_wheel_store(inputs, machine.settings)
    context = inputs.context.below(install_step.CODE)
    for locked in variants:
        wheels = {wheel.file: wheel for wheel in locked.wheels}
        wheels[f"installer/{locked.installer.file}"] = locked.installer
        store.fetch(wheels.values(), machine.progress)
        check_closed(inputs, locked, machine.settings)
        text = install_step.requirements_text(locked).encode()
        files = [_make_entry(path, store.require(wheel), wheel.size, wheel.sha256) for path, wheel in wheels.items()]
        files.append(_make_entry(install_step.REQUIREMENTS, text, len(text), hashlib.sha256(text).hexdigest()))
        folders = (Entry(path=path, kind=Kind.DIRECTORY, mode=0o755) for path in ("installer",))
        context = context.joined(Context((*folders, *files)).below(install_step.context_folder(locked)))
    return context


def _make_entry(path: str, origin: Path | bytes, size: int, sha256: str) -> Entry:
    return Entry(path=path, kind=Kind.FILE, mode=0o644, size=size, sha256=sha256, origin=origin)
