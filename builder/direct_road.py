"""The road without a daemon: layers are made here and appended to what the registry has.

A role's image is its own small layer on its variant's `packages` image, which lies in the repository under its key:
only when that is missing are wheels made into layers, and only when the base needs Debian packages does an engine
run, once, for the `system` stage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder import engine_road
from builder.direct.build import build_image
from builder.direct.bytecode import find_interpreter
from builder.direct.codecs import Compression
from builder.direct.image import DirectImage
from builder.direct.layer_cache import LayerCache, SharedRecords
from builder.direct.layers import MTIME, LayerSource
from builder.direct.publish import Publisher
from builder.direct.shared import RegistryRecords
from builder.direct.stage_plan import Chain, Material, chain
from builder.direct.stored import Stored, StoredStages, tag_of_stage, with_inline_config
from builder.direct.wheel_layers import Workshop
from builder.dockerfile import Stage
from builder.inputs import RoleImage
from builder.parallel import run_all
from builder.plan import Wheel
from builder.progress import Done, Outcome, Progress, Step
from builder.reference import Repository, Tag
from builder.registry.connect import Registries
from builder.spec import Role
from builder.work import Built, Work, tag_of

if TYPE_CHECKING:
    from builder.wheels import WheelStore


class WheelPaths:
    """Where wheels are, fetched in the background from the moment that the first is asked for, largest first."""

    def __init__(self, wheels: tuple[Wheel, ...], store: WheelStore, progress: Progress) -> None:
        self._wheels = sorted(wheels, key=lambda wheel: -wheel.size)
        self._store = store
        self._progress = progress
        self._lock = threading.Lock()
        self._paths: dict[str, Future[Path]] = {}
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="wheel")

    def __call__(self, wheel: Wheel) -> Path:
        """The wheel's file; raises what fetching raises."""
        here = self._store.path(wheel)
        if here is not None:
            return here
        with self._lock:
            if not self._paths:
                self._paths = {one.sha256: self._pool.submit(self._fetch, one) for one in self._wheels}
            future = self._paths.get(wheel.sha256) or self._pool.submit(self._fetch, wheel)
        return future.result()

    def _fetch(self, wheel: Wheel) -> Path:
        self._store.fetch((wheel,), self._progress)
        return self._store.require(wheel)

    def close(self) -> None:
        """Begins no further download."""
        from builder.wheels import SUBJECT

        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._paths and all(one.done() and not one.cancelled() for one in self._paths.values()):
            self._progress(Done(SUBJECT, Outcome.FETCHED, f"{len(self._paths)} files"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one role's image will be made directly."""

    image: RoleImage
    material: Material
    chain: Chain

    @property
    def packages(self) -> tuple[Stage, ...]:
        """The stages below the role's own that are done directly."""
        return self.chain.stages[:-1]


def way(work: Work, image: RoleImage) -> Way:
    """How to make the image directly; raises UnprovenError with the reason when it is for an engine."""
    material = Material(context=work.inputs.context, locked=image.plan.locked, exclude=image.plan.exclude)
    return Way(
        image=image, material=material, chain=chain(image.dockerfile, image.dockerfile.stages[-1].label, material)
    )


class DirectRoad:
    """Makes and pushes images for one run."""

    def __init__(self, work: Work, registries: Registries, publisher: Publisher) -> None:
        self._work = work
        self._registries = registries
        self._publisher = publisher
        self._stored = StoredStages(registries, work.settings.cache)
        repository = publisher.repository
        self._records = None if work.options.no_cache else RegistryRecords(registries.at(repository), repository)
        self._lock = threading.Lock()
        self._below: dict[str, Future[tuple[Stored, Repository]]] = {}

    def make(self, ways: tuple[Way, ...]) -> dict[Role, Built]:
        """Makes the images side by side and pushes them."""
        return run_all({one.image.role: partial(self._role, one) for one in ways})

    def _role(self, one: Way) -> Built:
        started = time.monotonic()
        image, role = one.image, one.image.role
        below, where = self._once(one)
        self._work.progress(Step(role, "appending"))
        with workshop(one, self._work, self._publisher.send, subject=role) as shop:
            made = build_image(
                image.dockerfile,
                one.chain.stages[-1:],
                one.material,
                shop,
                base=below.manifest,
                base_config=below.config,
            )
        digest = self._publisher.publish(made, (tag_of(image),), role, where)
        seconds = time.monotonic() - started
        self._work.progress(Done(role, Outcome.APPENDED, str(digest), seconds))
        return Built(role=role, outcome=Outcome.APPENDED, key=image.key, tag=image.tag, digest=digest, seconds=seconds)

    def _once(self, one: Way) -> tuple[Stored, Repository]:
        """The image that the role's own stage starts from; roles that share it make it once."""
        own = one.chain.stages[-1]
        parent = one.image.dockerfile.earlier(own.base, own)
        label = parent.label if parent else ""
        key = one.image.keys.get(label, own.base)
        with self._lock:
            future = self._below.get(key)
            mine = future is None
            if future is None:
                future = self._below[key] = Future()
        if mine:
            try:
                future.set_result(self._parent(one, label, key))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def _parent(self, one: Way, label: str, key: str) -> tuple[Stored, Repository]:
        repository = self._publisher.repository
        stages = tuple(stage for stage in one.packages if stage.instructions)
        if stages and not self._work.options.no_cache:
            found = self._stored.stage(tag_of_stage(repository, label, key))
            if found is not None:
                self._publisher.remember([layer.digest for layer in found.manifest.layers])
                return found, repository
        base, where = self._start(one)
        if not stages:
            return base, where
        tag = tag_of_stage(repository, label, key)
        return self._packages(one, stages, base, where=where, tag=tag), repository

    def _packages(self, one: Way, stages: tuple[Stage, ...], base: Stored, *, where: Repository, tag: Tag) -> Stored:
        """Makes the stages between the base and the role, and leaves them in the repository under their key."""
        started = time.monotonic()
        subject = f"{stages[-1].label} {one.image.plan.locked.variant.name}"
        self._work.progress(Step(subject, f"{len(one.image.plan.locked.wheels)} wheels become layers"))
        with workshop(one, self._work, self._publisher.send, subject=subject, shared=self._records) as shop:
            made = build_image(
                one.image.dockerfile, stages, one.material, shop, base=base.manifest, base_config=base.config
            )
        carrying = with_inline_config(made)
        self._publisher.publish(carrying, (tag,), subject, where)
        self._stored.keep(tag, carrying)
        self._work.progress(Done(subject, Outcome.APPENDED, f"{len(made.layers)} layers", time.monotonic() - started))
        return stored_of(carrying)

    def _start(self, one: Way) -> tuple[Stored, Repository]:
        """The base, or the image of the stage that only an engine can build."""
        if one.chain.engine_stage is None:
            base = one.image.plan.base if one.chain.start is None else one.chain.start
            return self._stored.base(base), base.repository
        repository = self._publisher.repository
        stage = one.chain.engine_stage
        tag = tag_of_stage(repository, stage.label, one.image.keys[stage.label])
        found = None if self._work.options.no_cache else self._stored.stage(tag)
        if found is None:
            with engine_road.open_engine(self._work.settings) as engine:
                engine_road.push_stage(
                    self._work, engine, one.image, label=stage.label, tag=tag, registries=self._registries
                )
            found = self._stored.stage(tag)
        if found is None:
            raise engine_road.lost(tag)
        self._publisher.remember([layer.digest for layer in found.manifest.layers])
        return found, repository


def stored_of(image: DirectImage) -> Stored:
    """An image that was just made, as one to append to."""
    from builder.registry.manifests import parse_manifest

    return Stored(parse_manifest(image.manifest, image.manifest_type, image.digest), image.config, here=True)


@contextmanager
def workshop(
    one: Way,
    work: Work,
    ready: Callable[[LayerSource, str], None],
    *,
    subject: str = "",
    shared: SharedRecords | None = None,
) -> Iterator[Workshop]:
    """What the layers of one role are made with; downloads that were begun for it end with the block."""
    from builder.wheels import WheelStore

    settings = work.settings
    installer = one.image.plan.locked.installer
    paths = WheelPaths((*one.image.plan.locked.wheels, installer), WheelStore(settings), work.progress)
    try:
        yield Workshop(
            cache=LayerCache(settings.cache / "layers", shared),
            wheel_path=paths,
            find_interpreter=lambda python: find_interpreter(python, settings.environ),
            compression=Compression(work.inputs.spec_file.spec.compression),
            mtime=settings.source_date_epoch or MTIME,
            ready=lambda layer: ready(layer, subject),
        )
    finally:
        paths.close()
