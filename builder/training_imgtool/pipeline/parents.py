"""Finds the parent image of a role: the image that the role's stages are appended to.

For a registry that is the role's `packages` stage, which lies in the repository under its key: made, once per run, when
it is missing; an engine runs the stage below it when that has a RUN. For all other sinks it is the base.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.core.errors import ImgtoolError, NeedsEngineError, VerificationError
from training_imgtool.core.interpreters import NoInterpreterError
from training_imgtool.core.progress import Done, Note, Outcome, Planned, Step
from training_imgtool.core.reference import Digest, Tag
from training_imgtool.direct.base_files import BaseReader
from training_imgtool.direct.build import ParentImage
from training_imgtool.direct.files import Files
from training_imgtool.direct.image.image import StoredImage, read_config
from training_imgtool.direct.layers.layer_cache import RECORDS, LayerCache, Record, dump_records, read_records
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.direct.registry.stored_stages import StoredStages, as_stage, make_stored, tag_of_stage
from training_imgtool.direct.stage_plan import ROOT
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.pipeline.direct_builder import Appending, DirectBuilder
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.pipeline.request import BuildRun, missing_push
from training_imgtool.pipeline.role_stages import RoleStages, plan_stage_image
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.failures import BlobUnknownError
from training_imgtool.registry.manifests import Descriptor, Manifest

if TYPE_CHECKING:
    from training_imgtool.pipeline.engine.engine import Engine

_LARGEST_RECORDS = 1 << 20  # bytes of an annotation


class Parents(ABC):
    """Finds the parent images of one run, and knows their files. Thread-safe."""

    def __init__(self, run: BuildRun, registries: Registries, builder: DirectBuilder) -> None:
        self._run = run
        self._registries = registries
        self._builder = builder
        self._stored = StoredStages(registries, run.settings.cache)
        self._reader = BaseReader(LayerCache(run.settings.cache / "layers"))
        self._lock = threading.Lock()
        self._files: dict[str, Files] = {}

    @abstractmethod
    def of(self, role: RoleStages, lost: Appending | None = None) -> Appending:
        """Returns the role's stages planned on its parent image.

        With `lost`, an earlier answer whose parent the registry no longer has, makes the parent again. Raises
        NeedsEngineError when only an engine can make the role's image, and what finding and making the parent raise.
        """

    def close(self, *, failed: bool) -> None:
        """Ends the work in the background: waits for it, or gives it up when the run failed."""
        del failed

    def _find_base(self, role: RoleStages) -> StoredImage:
        """Returns the image below the role's direct stages where no engine makes it."""
        return self._stored.base(role.split.base or role.image.plan.base, role.image.plan.platform)

    def _files_of(self, role: RoleStages) -> Files:
        """Returns the files of the image that the role's direct stages start from; each is read once, when needed."""
        stage = role.split.engine_stage
        key = role.image.keys[stage.label] if stage else str(role.split.base or role.image.plan.base)
        with self._lock:
            if key not in self._files:
                self._files[key] = self._files_on_top(role) if stage else self._base_files(role)
            return self._files[key]

    def _base_files(self, role: RoleStages) -> Files:
        plan = role.image.plan
        base = role.split.base or plan.base

        def layers() -> tuple[Descriptor, ...]:
            return self._find_base(role).manifest.layers

        def diff_ids() -> tuple[str, ...]:
            return tuple(read_config(self._find_base(role).config)["rootfs"]["diff_ids"])

        name = plan.base_name if base == plan.base else None
        read = partial(self._registries.at(base.repository).blob, base.repository)
        return self._reader.files(name, layers, read, diff_ids)

    def _files_on_top(self, role: RoleStages) -> Files:
        """Returns the files of the engine's stage that the role's direct stages start from."""

        def layers() -> tuple[Descriptor, ...]:
            stored, below = self._find_lowest(role), self._find_base(role)
            ids, of_base = (read_config(image.config)["rootfs"]["diff_ids"] for image in (stored, below))
            if ids[: len(of_base)] != of_base:
                raise NeedsEngineError(f"the image of stage {role.split.stages[0].base} does not begin with its base")
            return stored.manifest.layers[len(of_base) :]

        repository = self._run.inputs.repository
        read = partial(self._registries.at(repository).blob, repository)
        return self._reader.files_on_top(self._base_files(role), layers, read)

    def _find_lowest(self, role: RoleStages) -> StoredImage:
        """Returns the image below the role's direct stages; raises NeedsEngineError if an engine's stage is gone."""
        stage = role.split.engine_stage
        if stage is None:
            return self._find_base(role)
        tag = tag_of_stage(self._run.inputs.repository, stage.label, role.image.keys[stage.label])
        stored = self._stored.stage(tag)
        if stored is None:
            raise NeedsEngineError(f"{tag}: the image of the stage {stage.label} is gone, so its files are unknown")
        return stored


class BaseParents(Parents):
    """Appends all stages of a role to its base, for sinks that hold no stages."""

    def of(self, role: RoleStages, lost: Appending | None = None) -> Appending:
        """Returns all stages of the role planned on its base."""
        del lost
        role.require_direct()
        if stage := role.split.engine_stage:
            raise NeedsEngineError(
                f"{role.image.role}: the stage {stage.label} needs an engine: {role.split.reasons[stage.label]}"
            )
        parent = ParentImage(stored=self._find_base(role), files=self._files_of(role))
        stages = tuple(stage for stage in role.split.stages if stage.instructions)
        return self._builder.plan(role, parent, stages, self._builder.new_cache())


class StageParents(Parents):
    """Appends a role's own stage to its `packages` stage in the repository, made once per run when it is missing."""

    def __init__(
        self,
        run: BuildRun,
        registries: Registries,
        builder: DirectBuilder,
        publisher: Publisher,
        engine: Engine,
    ) -> None:
        super().__init__(run, registries, builder)
        self._publisher = publisher
        self._engine = engine
        self._repository = publisher.repository
        self._found: dict[str, Future[StoredImage]] = {}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="latest")

    def of(self, role: RoleStages, lost: Appending | None = None) -> Appending:
        """Returns the role's own stage planned on the image below it."""
        role.require_direct()
        stored = self._find_once(role, lost.parent.stored if lost else None)
        return self._plan(role, stored, (role.own,), self._builder.new_cache(), below=role.shared)

    def image_of(self, image: RoleImage, label: str) -> Digest:
        """Returns the image of a stage in a registry, made when it is missing; raises what making it raises."""
        stored = self._find_once(plan_stage_image(self._run.inputs, image, label), None)
        return stored.repository.digest(stored.manifest.digest)

    def close(self, *, failed: bool) -> None:
        """Waits until the next run can find what this one made; a failed run gives up."""
        self._background.shutdown(wait=not failed, cancel_futures=failed)

    def _find_once(self, role: RoleStages, lost: StoredImage | None) -> StoredImage:
        """Returns the image below the role's own stage; other roles wait for the first that needs it."""
        key = role.image.keys.get(role.parent_label, role.own.base)
        with self._lock:
            task = self._found.get(key)
            is_mine = task is None or (lost is not None and task.done() and task.result() is lost)
            if task is None or is_mine:
                task = self._found[key] = Future()
        if is_mine:
            try:
                task.set_result(self._find_packages(role, anew=lost is not None))
            except BaseException as error:
                task.set_exception(error)
                raise
        return task.result()

    def _plan(
        self,
        role: RoleStages,
        stored: StoredImage,
        stages: tuple[Stage, ...],
        cache: LayerCache,
        below: tuple[Stage, ...] = (),
    ) -> Appending:
        parent = ParentImage(
            stored=stored,
            files=self._files_of(role),
            below=below,
            settings=lambda: read_config(self._find_lowest(role).config).get("config") or {},
        )
        return self._builder.plan(role, parent, stages, cache)

    def _find_packages(self, role: RoleStages, *, anew: bool) -> StoredImage:
        if not role.shared:
            return self._find_below(role, anew=anew)
        tag = tag_of_stage(self._repository, role.parent_label, role.image.keys[role.parent_label])
        return self._find_stage(tag, anew=anew) or self._make_packages(role, tag)

    def _find_stage(self, tag: Tag, *, anew: bool = False) -> StoredImage | None:
        """Looks up a stage's image in the repository, unless the registry lost it or the run must not use it."""
        if anew:
            self._stored.forget(tag)
        if anew or self._run.options.no_cache:
            return None
        stored = self._stored.stage(tag)
        if stored:
            self._publisher.expect(stored.manifest.layers)
            self._reader.cache.given |= _records_in(stored.manifest)
        return stored

    def _make_packages(self, role: RoleStages, tag: Tag) -> StoredImage:
        started = time.monotonic()
        wheels = role.image.plan.locked.wheels
        self._run.progress(Planned(role.packages, sum(wheel.size for wheel in wheels), is_estimate=True))
        self._run.progress(Step(role.packages, f"{len(wheels)} wheels become layers"))
        try:
            stored = self._append_packages(role, tag)
        except NoInterpreterError as error:
            return self._compile_packages(role, tag, error)
        self._stored.keep(tag, stored)
        self._background.submit(self._name_latest, role, stored)
        seconds, count = time.monotonic() - started, len(stored.manifest.layers)
        self._run.progress(Done(role.packages, Outcome.APPENDED, f"{count} layers", seconds))
        return stored

    def _compile_packages(self, role: RoleStages, tag: Tag, error: NoInterpreterError) -> StoredImage:
        """Has a builder make bytecode, on an image of the wheels without it; raises `error` if no builder can."""
        if not self._engine.is_there():
            raise error
        self._run.progress(Note(f"{role.packages}: {error.message}; the builder makes it"))
        plain = tag_of_stage(self._repository, f"{role.parent_label}-plain", role.image.keys[role.parent_label])
        stored = self._find_stage(plain) or self._append(
            role, plain, self._find_below(role), self._builder.new_cache(), compiles=False
        )
        if (read_config(stored.config).get("config") or {}).get("User") not in ROOT:
            raise error
        below = self._repository.digest(stored.manifest.digest)
        return self._read_pushed(tag, self._engine.compile(role.image, role.parent_label, tag, below))

    def _append_packages(self, role: RoleStages, tag: Tag) -> StoredImage:
        """Appends the wheels; does it once more if a layer or the image below is not what somebody noted of it."""
        cache = self._builder.new_cache()
        below = self._find_below(role)
        cache.given |= self._find_latest(role)
        try:
            return self._append(role, tag, below, cache)
        except BlobUnknownError as error:
            is_below_lost = not error.digests or {layer.digest for layer in below.manifest.layers} & {*error.digests}
            below = self._find_below(role, anew=True) if is_below_lost else below
        except VerificationError:
            pass  # a layer came out as other bytes than its record says, which is dropped now
        return self._append(role, tag, below, self._builder.new_cache())

    def _append(
        self, role: RoleStages, tag: Tag, below: StoredImage, cache: LayerCache, *, compiles: bool = True
    ) -> StoredImage:
        appending = self._plan(role, below, role.shared, cache)
        with self._builder.append(appending, role.packages, compiles=compiles) as image:
            layers = {layer.digest for layer in (*image.base_layers, *(made.descriptor for made in image.layers))}
            records = dump_records(cache.records_of(layers) | self._reader.records_of(layers))
            stage = as_stage(image, {RECORDS: records} if len(records) < _LARGEST_RECORDS else {})
            self._publisher.publish(stage, tag, role.packages, below.repository)
        return make_stored(stage, self._repository)

    def _latest(self, role: RoleStages) -> Tag:
        """Returns the tag of the last packages of a variant and platform; it moves, and decides no digest."""
        plan = role.image.plan
        words = (role.parent_label, "latest", plan.locked.variant.name, *plan.platform.split("/"))
        return self._repository.tag("-".join(words))

    def _find_latest(self, role: RoleStages) -> dict[str, Record]:
        """Reads the records of the last packages, so that their layers need no wheels if they are the same."""
        if self._run.options.no_cache:
            return {}
        with suppress(ImgtoolError):
            manifest = self._registries.at(self._repository).find_manifest(self._latest(role))
            if manifest is not None and not manifest.is_index:
                self._publisher.expect(manifest.layers)
                return _records_in(manifest)
        return {}

    def _name_latest(self, role: RoleStages, stored: StoredImage) -> None:
        """Moves the tag that `_find_latest` reads; it only saves time, and some registries let no tag move."""
        manifest = stored.manifest
        with suppress(ImgtoolError):
            registry = self._registries.at(self._repository)
            registry.put_manifest(self._latest(role), manifest.media_type, manifest.body)

    def _find_below(self, role: RoleStages, *, anew: bool = False) -> StoredImage:
        """Returns the base, or the image of the last stage that only an engine can build."""
        stage = role.split.engine_stage
        if stage is None:
            return self._find_base(role)
        tag = tag_of_stage(self._repository, stage.label, role.image.keys[stage.label])
        return self._find_stage(tag, anew=anew) or self._run_stage(role, stage.label, tag, anew=anew)

    def _run_stage(self, role: RoleStages, label: str, tag: Tag, *, anew: bool) -> StoredImage:
        """Has an engine run a stage; raises what `Engine.require` and `push` raise."""
        reason = role.split.reasons[label]
        self._run.progress(Note(f"{label}: needs an engine: {reason}"))
        self._engine.require(label, reason)
        return self._read_pushed(tag, self._engine.push(role.image, label, tag, self, anew=anew))

    def _read_pushed(self, tag: Tag, pushed: Digest) -> StoredImage:
        """Returns the image that an engine pushed; raises VerificationError when the registry has none."""
        self._stored.forget(tag)
        stored = self._stored.stage(tag)
        if stored is None:
            raise missing_push(pushed)
        self._publisher.expect(stored.manifest.layers)
        return stored


def _records_in(manifest: Manifest) -> dict[str, Record]:
    """Reads the records of layers that the manifest of a stage carries."""
    return read_records(manifest.document["config"].get("annotations"))
