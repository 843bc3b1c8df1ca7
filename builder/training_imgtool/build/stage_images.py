"""The images that roles are appended to: in the repository under their stage's key, or made now, each once per run."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from training_imgtool.build.request import BuildRun
from training_imgtool.build.role_build import RoleBuild, workshop
from training_imgtool.build.start_files import StartFiles
from training_imgtool.core.errors import (
    EngineUnavailableError,
    NeedsEngineError,
    RegistryRefusedError,
    VerificationError,
)
from training_imgtool.core.progress import Done, Note, Outcome, Step
from training_imgtool.core.reference import Repository, Tag
from training_imgtool.direct.build import Start, build_image
from training_imgtool.direct.image.image import DirectImage, read_config
from training_imgtool.direct.layers.blobs import RemadeError
from training_imgtool.direct.layers.shared_records import RegistryRecords
from training_imgtool.direct.registry.memory import tag_of_stage
from training_imgtool.direct.registry.publish import Publisher
from training_imgtool.direct.registry.stored_stages import Stored, StoredStages, stored_of, with_inline_config
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.http.failures import BlobUnknownError


@dataclass(frozen=True, slots=True)
class Below:
    """An image to append to, and the repository that holds its layers."""

    stored: Stored
    where: Repository

    def lacks(self, error: BlobUnknownError) -> bool:
        """Whether the registry misses layers of this image, or does not say which it misses."""
        return not error.digests or bool(set(error.digests) & {layer.digest for layer in self.stored.manifest.layers})


class StageImages:
    """The stages' images of one run. Threads may call it at will."""

    def __init__(self, work: BuildRun, registries: Registries, publisher: Publisher) -> None:
        self._work = work
        self._registries = registries
        self._publisher = publisher
        self._repository = publisher.repository
        self._stored = StoredStages(registries, work.settings.cache)
        self._records = RegistryRecords(registries, self._repository, believe=not work.options.no_cache)
        self._files = StartFiles(work, registries, self._stored, self._records)
        self._lock = threading.Lock()
        self._made: dict[str, Future[Below]] = {}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="records")

    def below(self, one: RoleBuild, lost: Below | None = None) -> Below:
        """What the role's own stage starts from; roles that share it make it once.

        With `lost`, which an earlier call gave and the registry has no more, it is made again. Raises what making it
        raises: NeedsEngineError when only an engine could, and there is none or it may not be used.
        """
        key = one.image.keys.get(one.below, one.own.base)
        with self._lock:
            task = self._made.get(key)
            mine = task is None or (lost is not None and task.done() and task.result() is lost)
            if task is None or mine:
                task = self._made[key] = Future()
        if mine:
            try:
                task.set_result(self._found(one, anew=lost is not None))
            except BaseException as error:
                task.set_exception(error)
                raise
        return task.result()

    def start(self, one: RoleBuild, below: Below, *, shared: bool) -> Start:
        """What the shared stages, or the role's own stage, begin on, which is `below`."""
        on_top = () if shared else one.shared
        return Start(
            manifest=below.stored.manifest,
            config=below.stored.config,
            files=self._files.of(one),
            below=on_top,
            settings=lambda: read_config(self._files.lowest(one).config).get("config") or {},
        )

    def finish(self) -> None:
        """Waits until what was learned has been left for other machines."""
        self._background.shutdown()

    def give_up(self) -> None:
        """Leaves no more behind."""
        self._background.shutdown(wait=False, cancel_futures=True)

    def _found(self, one: RoleBuild, *, anew: bool) -> Below:
        if not one.shared:
            return self._start(one, anew=anew)
        tag = tag_of_stage(self._repository, one.below, one.image.keys[one.below])
        found = self._looked_up(tag, anew=anew)
        if found is not None:
            return found
        started = time.monotonic()
        wheels = len(one.image.plan.locked.wheels)
        self._work.progress(Step(one.subject, f"{wheels} wheels become layers"))
        image = self._made_and_pushed(one, tag)
        self._stored.keep(tag, image)
        self._background.submit(self._records.leave)
        seconds = time.monotonic() - started
        self._work.progress(Done(one.subject, Outcome.APPENDED, f"{len(image.layers)} layers", seconds))
        return Below(stored_of(image), self._repository)

    def _looked_up(self, tag: Tag, *, anew: bool) -> Below | None:
        """The stage's image in the repository, unless it was lost or is not wanted."""
        if anew:
            self._stored.forget(tag)
        if anew or self._work.options.no_cache:
            return None
        found = self._stored.stage(tag)
        return self._noted(found) if found else None

    def _noted(self, found: Stored) -> Below:
        self._publisher.remember(layer.digest for layer in found.manifest.layers)
        return Below(found, self._repository)

    def _made_and_pushed(self, one: RoleBuild, tag: Tag) -> DirectImage:
        """Makes the shared stages; again, once, where a record or the memory of what is below proves wrong.

        Any failure that a record can cause drops the records: whoever may write them may have written anything.
        """
        start = self._start(one, anew=False)
        make = partial(self._appended, one, tag)
        try:
            return make(start)
        except BlobUnknownError as error:
            return make(self._start(one, anew=start.lacks(error)))
        except (VerificationError, NeedsEngineError, RegistryRefusedError) as error:
            used = self._records.disbelieve()
            if isinstance(error, RemadeError):
                self._publisher.forget((error.digest,))
            elif not used:
                raise
            return make(start)

    def _appended(self, one: RoleBuild, tag: Tag, start: Below) -> DirectImage:
        send = partial(self._publisher.send, mount_from=self._records.store)
        with workshop(one, self._work, start.stored.config, send, shared=self._records) as shop:
            image = build_image(
                one.image.dockerfile,
                one.shared,
                one.material,
                shop,
                start=self.start(one, start, shared=True),
            )
            carrying = with_inline_config(image)
            self._publisher.publish(carrying, tag, one.subject, start.where)
        return carrying

    def _start(self, one: RoleBuild, *, anew: bool) -> Below:
        """The base, or the image of the stage that only an engine can build."""
        stage = one.chain.engine_stage
        if stage is None:
            base = one.chain.start or one.image.plan.base
            return Below(self._stored.base(base, one.image.plan.platform), base.repository)
        tag = tag_of_stage(self._repository, stage.label, one.image.keys[stage.label])
        return self._looked_up(tag, anew=anew) or self._built(one, stage.label, tag)

    def _built(self, one: RoleBuild, label: str, tag: Tag) -> Below:
        """Has an engine build a stage; raises EngineUnavailableError, which says what for, where there is none."""
        from training_imgtool.build import engine_build

        reason = one.chain.reasons[label]
        self._work.progress(Note(f"{label}: for an engine: {reason}"))
        try:
            with engine_build.open_engine(self._work.settings) as engine:
                engine_build.push_stage(
                    self._work, engine, one.image, label=label, tag=tag, registries=self._registries
                )
        except EngineUnavailableError as error:
            message = f"the stage {label} needs an engine ({reason}): {error.message}"
            raise EngineUnavailableError(message, hint=error.hint, details=error.details) from error
        self._stored.forget(tag)
        found = self._stored.stage(tag)
        if found is None:
            raise engine_build.lost(tag)
        return self._noted(found)
