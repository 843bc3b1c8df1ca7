"""Finds the parent image of a role: the image to which imgtool appends the role's own stage.

For a push, the parent is the image of the stage below, and the repository names that image by the stage's key. If the
image is missing, imgtool makes it once per run, or an engine makes it if the stage runs shell lines. For all other
sinks, the parent is the base image.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.errors import FieldError, ImgtoolError, NeedsEngineError, VerificationError
from training_imgtool.base.progress import Done, Note, Outcome, Planned, Step
from training_imgtool.base.reference import Digest, Tag
from training_imgtool.make.direct_builder import Appending, DirectBuilder
from training_imgtool.make.request import BuildRun, missing_push
from training_imgtool.model.recipe.recipe import PACKAGES, RUN, SETUP, SYSTEM, Stage
from training_imgtool.oci.direct.base_files import BaseReader
from training_imgtool.oci.direct.build import ROOT, ParentImage, add_files
from training_imgtool.oci.direct.files import Files
from training_imgtool.oci.image.image import StoredImage, read_config
from training_imgtool.oci.layers.layer_cache import RECORDS, LayerCache, Record, dump_records, read_records
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.registry.manifests import Descriptor, Manifest
from training_imgtool.oci.repository.publish import Publisher
from training_imgtool.oci.repository.stored_stages import StoredStages, as_stage, make_stored, tag_of_stage
from training_imgtool.oci.wheel_layers.layer_tools import LibraryFiles
from training_imgtool.plan.inputs import RoleImage

if TYPE_CHECKING:
    from training_imgtool.make.engines.engine import Engine

_LARGEST_RECORDS = 1 << 20  # bytes of an annotation


class Parents(ABC):
    """Finds the parent images of one run, and the files in these images. Thread-safe."""

    def __init__(self, run: BuildRun, builder: DirectBuilder) -> None:
        self._run = run
        self._registries = run.machine.registries
        self._builder = builder
        self._stored = StoredStages(self._registries, run.machine.settings.cache)
        self._reader = BaseReader(builder.new_cache())
        self._lock = threading.Lock()
        self._files: dict[str, Files] = {}

    @abstractmethod
    def of(self, image: RoleImage, lost: Appending | None = None) -> Appending:
        """Plans the stages above the parent image, on that image.

        `lost` is an earlier result whose parent the registry has lost; with it, this method makes the parent again.
        Raises NeedsEngineError when only an engine can make the image, and what finding and making the parent raise.
        """

    def close(self, *, failed: bool) -> None:
        """Waits for work in background threads, or cancels that work if the run failed."""
        del failed

    def _find_base(self, image: RoleImage) -> StoredImage:
        return self._stored.base(image.recipe.base, image.recipe.platform)

    def _files_below(self, image: RoleImage, count: int) -> Files:
        """Returns the files in the base and in the image's lowest `count` stages; reads each stage once."""
        key = image.stages[count - 1].key if count else str(image.recipe.base)
        with self._lock:
            if key in self._files:
                return self._files[key]
        files = self._files_with(image, count) if count else self._base_files(image)
        with self._lock:
            return self._files.setdefault(key, files)

    def _files_with(self, image: RoleImage, count: int) -> Files:
        below = self._files_below(image, count - 1)
        debian = self._builder.open_debian(image, self._builder.new_cache()) if image.recipe.debian else None
        return add_files(image.recipe, image.stages[count - 1], below, debian)

    def _library(self, image: RoleImage) -> LibraryFiles:
        """Returns the base's layers, which imgtool reads only if it must compile the standard library."""
        base = image.recipe.base

        def layers() -> Iterator[Iterator[bytes]]:
            registry = self._registries.at(base.repository)
            for layer in reversed(self._find_base(image).manifest.layers):
                yield registry.blob(base.repository, layer)

        return LibraryFiles(digest=base.digest, layers=layers)

    def _base_files(self, image: RoleImage) -> Files:
        recipe = image.recipe

        def layers() -> tuple[Descriptor, ...]:
            return self._find_base(image).manifest.layers

        def diff_ids() -> tuple[str, ...]:
            return tuple(read_config(self._find_base(image).config)["rootfs"]["diff_ids"])

        read = partial(self._registries.at(recipe.base.repository).blob, recipe.base.repository)
        return self._reader.files(recipe.base_name, layers, read, diff_ids)


class BaseParents(Parents):
    """Appends all stages of an image to its base, for sinks that do not store stages."""

    def of(self, image: RoleImage, lost: Appending | None = None) -> Appending:
        """Plans all stages of the image on its base."""
        del lost
        for stage in image.stages:
            if stage.engine:
                raise NeedsEngineError(f"{image.role}: the stage {stage.name} needs an engine: {stage.engine}")
        stored, files = self._find_base(image), self._files_below(image, 0)
        parent = ParentImage(stored=stored, files=files, library=self._library(image))
        return self._builder.plan(image, parent, image.stages, self._builder.new_cache())


class StageParents(Parents):
    """Appends an image's own (last) stage to the stage below in the repository; makes a missing stage once per run."""

    def __init__(
        self,
        run: BuildRun,
        builder: DirectBuilder,
        publisher: Publisher,
        engine: Engine,
    ) -> None:
        super().__init__(run, builder)
        self._publisher = publisher
        self._engine = engine
        self._repository = publisher.repository
        self._found: dict[str, Future[StoredImage]] = {}
        self._had: set[Tag] = set()  # stages that the repository had before this run
        self._background = ThreadPoolExecutor(1, thread_name_prefix="latest")

    def of(self, image: RoleImage, lost: Appending | None = None) -> Appending:
        """Plans the image's own (last) stage on the image of the stage below."""
        if image.own.engine:
            raise NeedsEngineError(image.own.engine)
        if any(stage.name in {RUN, SETUP} for stage in image.stages):
            _check_user(image, self._find_base(image))
        count = len(image.stages) - 1
        stored = self._find_once(image, count, lost.parent.stored if lost else None)
        return self._plan(image, stored, slice(count, None), self._builder.new_cache())

    def close(self, *, failed: bool) -> None:
        """Waits for the background work that lets the next run find this run's stages; cancels it if the run failed."""
        self._background.shutdown(wait=not failed, cancel_futures=failed)

    def _find_once(self, image: RoleImage, count: int, lost: StoredImage | None = None) -> StoredImage:
        """Returns the image of the lowest `count` stages; the first role makes it while other roles wait."""
        if not count:
            return self._find_base(image)
        key = image.stages[count - 1].key
        with self._lock:
            task = self._found.get(key)
            is_mine = task is None or (lost is not None and task.done() and task.result() is lost)
            if task is None or is_mine:
                task = self._found[key] = Future()
        if is_mine:
            try:
                task.set_result(self._find_or_make(image, count, anew=lost is not None))
            except BaseException as error:
                task.set_exception(error)
                raise
        return task.result()

    def _find_or_make(self, image: RoleImage, count: int, *, anew: bool) -> StoredImage:
        stage = image.stages[count - 1]
        tag = self._tag_of(stage)
        found = self._find_stage(tag, anew=anew)
        if found is not None:
            return found
        return self._run_stage(image, count, anew=anew) if stage.engine else self._make_stage(image, count, tag)

    def _tag_of(self, stage: Stage) -> Tag:
        return tag_of_stage(self._repository, stage.name, stage.key)

    def _files_with(self, image: RoleImage, count: int) -> Files:
        """Adds a stage's files to the files below.

        An engine's stage consists of the layers that the image below does not have. If this run appends to a stage that
        the repository had, its layer of Debian packages is read from there.
        """
        stage = image.stages[count - 1]
        if not stage.engine and (stage.name != SYSTEM or (above := self._found_above(image, count)) is None):
            return super()._files_with(image, count)

        def layers() -> tuple[Descriptor, ...]:
            if not stage.engine and above is not None:
                first = len(self._find_once(image, count - 1).manifest.layers)
                return above.manifest.layers[first : first + 1]
            lower, upper = self._find_once(image, count - 1), self._find_once(image, count)
            ids, of_lower = (read_config(stored.config)["rootfs"]["diff_ids"] for stored in (upper, lower))
            if ids[: len(of_lower)] != of_lower:
                raise NeedsEngineError(f"{self._tag_of(stage)} does not begin with the layers of the stage below")
            return upper.manifest.layers[len(of_lower) :]

        read = partial(self._registries.at(self._repository).blob, self._repository)
        return self._reader.files_on_top(self._files_below(image, count - 1), layers, read)

    def _plan(self, image: RoleImage, stored: StoredImage, stages: slice, cache: LayerCache) -> Appending:
        files = self._files_below(image, stages.start)
        parent = ParentImage(stored=stored, files=files, library=self._library(image))
        return self._builder.plan(image, parent, image.stages[stages], cache)

    def _find_stage(self, tag: Tag, *, anew: bool = False) -> StoredImage | None:
        """Looks up a stage's image in the repository; None for `anew` and with `--no-cache`."""
        if anew:
            self._stored.forget(tag)
        if anew or self._run.options.no_cache:
            return None
        stored = self._stored.stage(tag)
        if stored:
            self._publisher.expect(stored.manifest.layers)
            self._had.add(tag)
        return stored

    def _found_above(self, image: RoleImage, count: int) -> StoredImage | None:
        """Returns the lowest image that the repository had and that contains the lowest `count` stages."""
        for stage in image.stages[count - 1 : -1]:
            if self._tag_of(stage) in self._had:
                return self._found[stage.key].result()
            if stage.engine:
                break
        return None

    def _make_stage(self, image: RoleImage, count: int, tag: Tag) -> StoredImage:
        """Makes stages that need no engine, on top of the highest stage below that an engine made, or of the base."""
        first = count - 1
        while first and not image.stages[first - 1].engine:
            first -= 1
        started, subject = time.monotonic(), image.subject_of(image.stages[count - 1])
        wheels = image.locked.wheels
        self._run.machine.progress(Planned(subject, sum(wheel.size for wheel in wheels), is_estimate=True))
        self._run.machine.progress(Step(subject, f"{len(wheels)} wheels become layers"))
        stages = slice(first, count)
        stored = self._append_stages(image, stages, tag)
        if image.stages[count - 1].name == PACKAGES:
            self._background.submit(self._name_latest, image, stored)
        seconds, layers = time.monotonic() - started, len(stored.manifest.layers)
        self._run.machine.progress(Done(subject, Outcome.APPENDED, f"{layers} layers", seconds))
        return stored

    def _append_stages(self, image: RoleImage, stages: slice, tag: Tag) -> StoredImage:
        """Appends stages; tries again once if a layer differs from its record, or if the image below is incomplete."""
        cache = self._builder.new_cache()
        below = self._find_once(image, stages.start)
        cache.given |= self._find_latest(image)
        try:
            return self._append(image, stages, tag, below, cache)
        except BlobUnknownError as error:
            is_below_lost = not error.digests or {layer.digest for layer in below.manifest.layers} & {*error.digests}
            below = self._find_once(image, stages.start, below) if is_below_lost else below
        except VerificationError:
            pass  # a layer differs from its record, which the cache has dropped now
        return self._append(image, stages, tag, below, self._builder.new_cache())

    def _append(self, image: RoleImage, stages: slice, tag: Tag, below: StoredImage, cache: LayerCache) -> StoredImage:
        appending, subject = self._plan(image, below, stages, cache), image.subject_of(image.stages[stages][-1])
        with self._builder.append(appending, subject) as made:
            layers = {layer.digest for layer in (*made.base_layers, *(layer.descriptor for layer in made.layers))}
            records = dump_records(cache.records_of(layers))
            stage = as_stage(made, {RECORDS: records} if len(records) < _LARGEST_RECORDS else {})
            self._publisher.publish(stage, tag, subject, below.repository)
        stored = make_stored(stage, self._repository)
        if cache.is_own:
            self._stored.keep(tag, stored)
        return stored

    def _latest(self, image: RoleImage) -> Tag:
        """Returns the tag of the newest `packages` stage for a variant and platform.

        No digest depends on this moving tag.
        """
        words = (PACKAGES, "latest", image.locked.variant.name, *image.recipe.platform.split("/"))
        return self._repository.tag("-".join(words))

    def _find_latest(self, image: RoleImage) -> dict[str, Record]:
        """Reads the layer records of the newest `packages` stage, so that an unchanged layer needs no wheels."""
        if self._run.options.no_cache:
            return {}
        with suppress(ImgtoolError):
            manifest = self._registries.at(self._repository).find_manifest(self._latest(image))
            if manifest is not None and not manifest.is_index:
                self._publisher.expect(manifest.layers)
                return _records_in(manifest)
        return {}

    def _name_latest(self, image: RoleImage, stored: StoredImage) -> None:
        """Moves the tag that `_find_latest` reads. If a registry refuses this, imgtool loses only time."""
        manifest = stored.manifest
        with suppress(ImgtoolError):
            registry = self._registries.at(self._repository)
            registry.put_manifest(self._latest(image), manifest.media_type, manifest.body)

    def _run_stage(self, image: RoleImage, count: int, *, anew: bool) -> StoredImage:
        """Lets an engine make a stage on the image below; raises what `Engine.require` and `run_stage` raise."""
        stage = image.stages[count - 1]
        self._run.machine.progress(Note(f"{stage.name}: needs an engine: {stage.engine}"))
        self._engine.require(stage.name, stage.engine)
        below = self._find_once(image, count - 1)
        digest = below.repository.digest(below.manifest.digest)
        tag = self._tag_of(stage)
        return self._read_pushed(tag, self._engine.run_stage(image, stage, tag, digest, anew=anew))

    def _read_pushed(self, tag: Tag, pushed: Digest) -> StoredImage:
        """Returns the image that an engine pushed; raises VerificationError when the registry has none."""
        stored = self._stored.find(pushed)
        if stored is None:
            raise missing_push(pushed)
        self._stored.keep(tag, stored)
        self._publisher.expect(stored.manifest.layers)
        return stored


def _check_user(image: RoleImage, base: StoredImage) -> None:
    """Raises FieldError if the base sets a user and the spec does not, because shell lines of the spec run as root."""
    user = (read_config(base.config).get("config") or {}).get("User")
    if user not in ROOT and not image.recipe.user:
        raise FieldError(
            f"the base image sets the user {user}, and shell lines run as root", field="user", hint=f"add user: {user}"
        )


def _records_in(manifest: Manifest) -> dict[str, Record]:
    """Reads the layer records in the manifest of a stage."""
    return read_records(manifest.document["config"].get("annotations"))
