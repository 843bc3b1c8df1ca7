"""The images that roles are appended to.

For a registry that is the role's `packages` stage, which lies in the repository under its key: made, once per run, when
it is missing; an engine runs the stage below it when that has a RUN. For all other sinks it is the base.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from training_imgtool.core.errors import (
    NeedsEngineError,
    RegistryRefusedError,
    VerificationError,
)
from training_imgtool.core.interpreters import NoInterpreterError
from training_imgtool.core.progress import Done, Note, Outcome, Planned, Step
from training_imgtool.core.reference import Digest, Repository, Tag
from training_imgtool.direct.build import Start
from training_imgtool.direct.image.image import DirectImage, read_config
from training_imgtool.direct.layers.blobs import RemadeError
from training_imgtool.direct.layers.shared_records import RegistryRecords
from training_imgtool.direct.registry.memory import tag_of_stage
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.direct.registry.stored_stages import Stored, StoredStages, make_stored, with_inline_config
from training_imgtool.direct.stage_plan import ROOT
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.pipeline.builders import RoleBuild, StartImage, StartImages, append_stages, plan_stage_image
from training_imgtool.pipeline.engine.engines import Engines
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun, missing_push
from training_imgtool.pipeline.start.files import StartFiles
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.failures import BlobUnknownError


class BaseImages(StartImages):
    """Starts every role at its base."""

    def __init__(self, run: BuildRun, registries: Registries) -> None:
        self._stored = StoredStages(registries, run.settings.cache)
        self._files = StartFiles(run, registries, self._stored, None)

    def start(self, role: RoleBuild, lost: StartImage | None = None) -> StartImage:
        """Returns the base with all stages; raises NeedsEngineError when a stage needs an engine."""
        del lost
        base, image = role.chain.start, role.image
        if base is None:
            stage = role.chain.engine_stage or image.dockerfile.stages[0]
            raise NeedsEngineError(
                f"{image.role}: the stage {stage.label} needs an engine: {role.chain.reasons.get(stage.label, '')}",
                hint="push to a registry, where an engine builds that stage once",
            )
        stored = self._stored.base(base, image.plan.platform)
        start = Start(manifest=stored.manifest, config=stored.config, files=self._files.of(role))
        stages = tuple(stage for stage in role.chain.stages if stage.instructions)
        return StartImage(start, base.repository, stages)


@dataclass(frozen=True, slots=True)
class _Place:
    """An image in a registry, and the repository that holds its layers."""

    stored: Stored
    repository: Repository


def _is_same(place: _Place, lost: StartImage) -> bool:
    return place.stored.manifest is lost.image.manifest


class RegistryImages(StartImages):
    """Starts every role at its `packages` stage in the repository, made once per run when it is missing."""

    def __init__(self, run: BuildRun, registries: Registries, publisher: Publisher, engine: Engines) -> None:
        self._run = run
        self._publisher = publisher
        self._engine = engine
        self._repository = publisher.repository
        self._stored = StoredStages(registries, run.settings.cache)
        self._records = RegistryRecords(registries, self._repository, believe=not run.options.no_cache)
        self._files = StartFiles(run, registries, self._stored, self._records)
        self._lock = threading.Lock()
        self._places: dict[str, Future[_Place]] = {}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="records")

    def start(self, role: RoleBuild, lost: StartImage | None = None) -> StartImage:
        """Returns the image below the role's own stage; raises what finding and making it raise."""
        key = role.image.keys.get(role.parent, role.own.base)
        with self._lock:
            task = self._places.get(key)
            mine = task is None or (lost is not None and task.done() and _is_same(task.result(), lost))
            if task is None or mine:
                task = self._places[key] = Future()
        if mine:
            try:
                task.set_result(self._packages(role, anew=lost is not None))
            except BaseException as error:
                task.set_exception(error)
                raise
        return self._start(role, task.result(), (role.own,), below=role.shared)

    def image_of(self, image: RoleImage, label: str) -> Digest:
        """The image of a stage in a registry, made when it is missing; raises what finding and making it raise."""
        start = self.start(plan_stage_image(self._run.inputs, image, label))
        return start.repository.digest(start.image.manifest.digest)

    def close(self, *, failed: bool) -> None:
        """Waits until the layer records for other machines are in the registry; a failed run leaves none."""
        self._background.shutdown(wait=not failed, cancel_futures=failed)

    def _start(
        self, role: RoleBuild, place: _Place, stages: tuple[Stage, ...], *, below: tuple[Stage, ...] = ()
    ) -> StartImage:
        image = Start(
            manifest=place.stored.manifest,
            config=place.stored.config,
            files=self._files.of(role),
            below=below,
            settings=lambda: read_config(self._files.lowest(role).config).get("config") or {},
        )
        return StartImage(image, place.repository, stages)

    def _packages(self, role: RoleBuild, *, anew: bool) -> _Place:
        if not role.shared:
            return self._base(role, anew=anew)
        tag = tag_of_stage(self._repository, role.parent, role.image.keys[role.parent])
        return _Place(self._find_stage(tag, anew=anew) or self._make_packages(role, tag), self._repository)

    def _find_stage(self, tag: Tag, *, anew: bool) -> Stored | None:
        """Looks up a stage's image in the repository, unless the registry lost it or the run must not use it."""
        if anew:
            self._stored.forget(tag)
        if anew or self._run.options.no_cache:
            return None
        stored = self._stored.stage(tag)
        if stored:
            self._publisher.remember(layer.digest for layer in stored.manifest.layers)
        return stored

    def _make_packages(self, role: RoleBuild, tag: Tag) -> Stored:
        started = time.monotonic()
        wheels = role.image.plan.locked.wheels
        self._run.progress(Planned(role.packages, sum(wheel.size for wheel in wheels), is_estimate=True))
        self._run.progress(Step(role.packages, f"{len(wheels)} wheels become layers"))
        try:
            image = self._append_packages(role, tag)
        except NoInterpreterError as error:
            return self._compile_packages(role, tag, error)
        self._stored.keep(tag, image)
        self._background.submit(self._records.leave)
        seconds = time.monotonic() - started
        self._run.progress(Done(role.packages, Outcome.APPENDED, f"{len(image.layers)} layers", seconds))
        return make_stored(image)

    def _compile_packages(self, role: RoleBuild, tag: Tag, error: NoInterpreterError) -> Stored:
        """Has a builder make bytecode, on an image of the wheels without it; raises `error` if no builder can."""
        if not self._engine.uses_buildx(role.image, role.parent):
            raise error
        self._run.progress(Note(f"{role.packages}: {error.message}; the builder makes it"))
        plain = tag_of_stage(self._repository, f"{role.parent}-plain", role.image.keys[role.parent])
        stored = self._find_stage(plain, anew=False)
        if stored is None:
            start = self._start(role, self._base(role, anew=False), role.shared)
            stored = make_stored(self._append(role, plain, start, compiles=False))
        if (read_config(stored.config).get("config") or {}).get("User") not in ROOT:
            raise error
        below = self._repository.digest(stored.manifest.digest)
        return self._read_pushed(tag, self._engine.compile(role.image, role.parent, tag, below))

    def _append_packages(self, role: RoleBuild, tag: Tag) -> DirectImage:
        """Appends the wheels, and does it again when a layer record or this machine's memory of the start was wrong.

        A failure that a record can cause drops the records, since their writers may have written anything.
        """
        start = self._start(role, self._base(role, anew=False), role.shared)
        append = partial(self._append, role, tag)
        try:
            return append(start)
        except BlobUnknownError as error:
            return append(self._start(role, self._base(role, anew=start.lacks(error)), role.shared))
        except NoInterpreterError:
            raise
        except (VerificationError, NeedsEngineError, RegistryRefusedError) as error:
            used = self._records.disbelieve()
            if isinstance(error, RemadeError):
                self._publisher.forget((error.digest,))
            elif not used:
                raise
            self._publisher.settle()  # uploads that the same records began fail later than the first
            return append(start)

    def _append(self, role: RoleBuild, tag: Tag, start: StartImage, *, compiles: bool = True) -> DirectImage:
        send = partial(self._publisher.send, mount_from=self._records.store)
        subject, records = role.packages, self._records
        making = append_stages(self._run, role, start, send, subject=subject, records=records, compiles=compiles)
        with making as made:
            image = with_inline_config(made)
            self._publisher.publish(image, tag, role.packages, start.repository)
        return image

    def _base(self, role: RoleBuild, *, anew: bool) -> _Place:
        """Returns the base, or the image of the last stage that only an engine can build."""
        stage = role.chain.engine_stage
        if stage is None:
            base = role.chain.start or role.image.plan.base
            return _Place(self._stored.base(base, role.image.plan.platform), base.repository)
        tag = tag_of_stage(self._repository, stage.label, role.image.keys[stage.label])
        return _Place(self._find_stage(tag, anew=anew) or self._run_stage(role, stage.label, tag), self._repository)

    def _run_stage(self, role: RoleBuild, label: str, tag: Tag) -> Stored:
        """Has an engine run a stage; raises what `Engines.require` and `push` raise."""
        reason = role.chain.reasons[label]
        self._run.progress(Note(f"{label}: needs an engine: {reason}"))
        self._engine.require(role.image, label, reason)
        return self._read_pushed(tag, self._engine.push(role.image, label, tag, self))

    def _read_pushed(self, tag: Tag, pushed: Digest) -> Stored:
        """The image that an engine pushed; raises VerificationError when the registry has none under the tag."""
        self._stored.forget(tag)
        stored = self._stored.stage(tag)
        if stored is None:
            raise missing_push(pushed)
        self._publisher.remember(layer.digest for layer in stored.manifest.layers)
        return stored
