"""The wheels of a run: the machine's store, the context with their files, and those that imgtool builds from archives.

The registry of the images has built wheels for other machines.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from training_imgtool.context.context import Context
from training_imgtool.core.errors import ImgtoolError
from training_imgtool.core.progress import Note, Progress
from training_imgtool.core.settings import Settings
from training_imgtool.dockerfile import install_step
from training_imgtool.plan import LockedVariant, Wheel

if TYPE_CHECKING:
    from training_imgtool.pipeline.inputs import Inputs
    from training_imgtool.pipeline.request import BuildRun
    from training_imgtool.registry.connect import Registries
    from training_imgtool.wheels.store import WheelStore


def with_wheels(context: Context, locked: LockedVariant) -> Context:
    """Returns the context with the variant's wheels in it, known by the lock's hashes; their bytes come when needed."""
    for path, wheel in wheel_paths(locked).items():
        context = context.with_known(path, sha256=wheel.sha256, size=wheel.size)
    requirements = f"{install_step.context_folder(locked)}/{install_step.REQUIREMENTS}"
    return context.with_bytes(requirements, install_step.requirements_text(locked).encode())


def wheel_paths(locked: LockedVariant) -> dict[str, Wheel]:
    """Returns where the variant's wheels, and pip's own, lie in the context."""
    folder = install_step.context_folder(locked)
    paths = {f"{folder}/{wheel.file}": wheel for wheel in locked.wheels}
    return {**paths, f"{folder}/installer/{locked.installer.file}": locked.installer}


def open_wheel_store(inputs: Inputs, settings: Settings) -> WheelStore:
    """Opens the machine's wheels; those that imgtool builds come from the images' registry, where that has them."""
    from training_imgtool.spec.requirement_files import read_texts
    from training_imgtool.spec.requirements import index_options
    from training_imgtool.spec.secrets import with_index_logins
    from training_imgtool.wheels.store import WheelStore

    def read(wheel: Wheel) -> Iterator[bytes] | None:
        from training_imgtool.direct.registry.stored_wheels import StoredWheels
        from training_imgtool.registry.connect import connect

        repository = inputs.plan.repository
        return StoredWheels(connect(settings), repository).read(wheel) if repository else None

    return WheelStore(
        with_index_logins(inputs.spec_file, settings),
        read_artifact=read,
        options=lambda: index_options(inputs.spec_file.folder, read_texts(inputs.spec_file)),
    )


def check_closed(inputs: Inputs, locked: LockedVariant, settings: Settings) -> None:
    """Raises InputError if a variant's wheels do not fit together, as far as they are on this machine."""
    from training_imgtool.spec.own_projects import own_names
    from training_imgtool.wheels.metadata import WheelMetadata

    own = own_names(inputs.spec_file)
    metadata = WheelMetadata(open_wheel_store(inputs, settings), settings.cache)
    metadata.check_closed(locked.wheels, locked.variant, inputs.plan.platform, own=own, everything=False)


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
            run.progress(Note(f"{wheel.file} is not kept in the registry, so no other machine has it: {error}"))
            return


class WheelContext:
    """Gives stages their files: the context, with wheels fetched at the moment a stage copies them."""

    def __init__(self, inputs: Inputs, settings: Settings, progress: Progress) -> None:
        self._inputs, self._settings = inputs, settings
        self._store = open_wheel_store(inputs, settings)
        self._progress = progress
        self._lock = threading.Lock()

    def write(self, sources: tuple[str, ...], stream: IO[bytes]) -> None:
        """Writes a tar of what `sources` name."""
        self.select(sources).write_tar(stream)

    def select(self, sources: tuple[str, ...]) -> Context:
        """Returns what `sources` name, with the bytes of every wheel at hand."""
        chosen = self._inputs.context.select(sources)
        paths = set(chosen.paths())
        files: dict[str, Path] = {}
        for locked in self._inputs.lock.variants:
            wheels = {path: wheel for path, wheel in wheel_paths(locked).items() if path in paths}
            with self._lock:
                self._store.fetch(wheels.values(), self._progress)
            files |= {path: self._store.require(wheel) for path, wheel in wheels.items()}
            if wheels:
                check_closed(self._inputs, locked, self._settings)
        return chosen.with_files(files)
