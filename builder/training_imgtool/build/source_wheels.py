"""Wheels that imgtool builds from archives: read from the registry of the images, and left there for other machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from training_imgtool.build.inputs import Inputs
from training_imgtool.build.request import BuildRun
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note
from training_imgtool.core.settings import Settings
from training_imgtool.plan import Wheel
from training_imgtool.spec.requirements import local_folders, read_texts
from training_imgtool.spec.secrets import with_index_logins

if TYPE_CHECKING:
    from training_imgtool.registry.connect import Registries
    from training_imgtool.wheels.store import WheelStore


def open_wheel_store(inputs: Inputs, settings: Settings) -> WheelStore:
    """The machine's wheels; those that imgtool builds come from the images' registry, where that has them."""
    from training_imgtool.wheels.store import WheelStore

    repository = inputs.plan.repository

    def read(wheel: Wheel) -> Iterator[bytes] | None:
        from training_imgtool.direct.registry.stored_wheels import StoredWheels
        from training_imgtool.registry.connect import connect

        return StoredWheels(connect(settings), repository).read(wheel) if repository else None

    spec_file = inputs.spec_file

    return WheelStore(
        with_index_logins(spec_file, settings),
        spec_file.folder,
        read_artifact=read,
        find_links=lambda: local_folders(spec_file.folder, read_texts(spec_file)),
    )


def keep_built_wheels(run: BuildRun, registries: Registries) -> None:
    """Leaves the built wheels of this machine in the images' registry. The images are up: a failure is a note."""
    variants = {id(image.plan.locked): image.plan.locked for image in run.wanted}.values()
    built = {wheel.sha256: wheel for locked in variants for wheel in locked.wheels if wheel.source}
    if not built:
        return
    from training_imgtool.direct.registry.stored_wheels import StoredWheels

    store = open_wheel_store(run.inputs, run.settings)
    stored = StoredWheels(registries, run.inputs.repository)
    for wheel in built.values():
        path = store.path(wheel)
        if path is None:
            continue
        try:
            stored.keep(wheel, path)
        except ImgtoolError as error:
            run.progress(Note(f"{wheel.file} is not kept in the registry, so other machines build it: {error}"))
            return
