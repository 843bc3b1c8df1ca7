"""How one role's image is made directly, and what its layers are made with on this machine."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from builder.direct import runtime
from builder.direct.codecs import Compression
from builder.direct.context_layers import OnceEach
from builder.direct.image import read_config
from builder.direct.layer_cache import LayerCache, SharedRecords
from builder.direct.layers import MTIME, LayerSource
from builder.direct.stage_plan import Chain, Material, chain
from builder.direct.workshop import Workshop
from builder.dockerfile import Stage
from builder.inputs import Inputs, RoleImage
from builder.plan import Wheel
from builder.progress import Progress
from builder.records import dataclass
from builder.registry.once import Once
from builder.tasks import Pool, Task
from builder.work import Work

if TYPE_CHECKING:
    from builder.direct.bytecode import Interpreter
    from builder.wheels import WheelStore

Ready = Callable[[LayerSource, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one role's image will be made directly."""

    image: RoleImage
    material: Material
    chain: Chain

    @property
    def own(self) -> Stage:
        """The role's own stage."""
        return self.chain.stages[-1]

    @property
    def shared(self) -> tuple[Stage, ...]:
        """The stages below the role's own that are done directly and do something."""
        return tuple(stage for stage in self.chain.stages[:-1] if stage.instructions)

    @property
    def below(self) -> str:
        """The label of the stage that the role's own starts from; empty when that is the base."""
        parent = self.image.dockerfile.earlier(self.own.base, self.own)
        return parent.label if parent else ""

    @property
    def subject(self) -> str:
        """What the shared stages are called in progress."""
        return f"packages {self.image.plan.locked.variant.name}"


def way(inputs: Inputs, image: RoleImage) -> Way:
    """How to make the image directly; raises UnprovenError with the reason when it is for an engine."""
    material = Material(context=inputs.context, locked=image.plan.locked, exclude=image.plan.exclude)
    split = chain(image.dockerfile, image.dockerfile.stages[-1].label, material)
    return Way(image=image, material=material, chain=split)


class WheelPaths:
    """Where wheels are. Those that are expected are fetched in the background: the first, then the largest.

    One that is larger than all the others together, as TensorFlow's is, has the line to itself: making its layers takes
    longest, and the others arrive meanwhile. Side by side it would be the last to arrive.
    """

    def __init__(self, open_store: Callable[[], WheelStore], progress: Progress) -> None:
        self._open_store = open_store
        self._progress = progress
        self._lock = threading.Lock()
        self._coming: dict[str, Task[Path]] = {}
        self._before_others: Task[Path] | None = None
        self._pool = Pool(4, "wheel")

    @functools.cached_property
    def _store(self) -> WheelStore:
        return self._open_store()  # most runs need no wheel, and the store loads the index's client

    def expect(self, wheels: tuple[Wheel, ...]) -> None:
        """Begins to fetch what is not here."""
        for first in wheels[:1]:
            if self._store.path(first) is None:
                self._begun(first)
        others = sorted((one for one in wheels[1:] if self._store.path(one) is None), key=lambda wheel: -wheel.size)
        if len(others) > 1 and others[0].size > sum(wheel.size for wheel in others[1:]):
            self._before_others = self._begun(others[0])
        for wheel in others:
            self._begun(wheel)

    def path(self, wheel: Wheel) -> Path:
        """The wheel's file; raises what fetching raises."""
        return self._store.path(wheel) or self._begun(wheel).result()

    def close(self) -> None:
        """Begins no further download."""
        self._pool.shutdown(wait=False, cancel=True)

    def _begun(self, wheel: Wheel) -> Task[Path]:
        with self._lock:
            if wheel.sha256 not in self._coming:
                self._coming[wheel.sha256] = self._pool.submit(self._fetch, wheel, self._before_others)
            return self._coming[wheel.sha256]

    def _fetch(self, wheel: Wheel, after: Task[Path] | None) -> Path:
        if after is not None:
            after.result()
        self._store.fetch((wheel,), self._progress)
        return self._store.require(wheel)


@contextmanager
def workshop(
    one: Way,
    work: Work,
    base_config: bytes,
    ready: Ready,
    *,
    shared: SharedRecords | None = None,
    compression: Compression | None = None,
    contexts: OnceEach | None = None,
    subject: str | None = None,
) -> Iterator[Workshop]:
    """What the layers of one role are made with; downloads that were begun for it end with the block.

    Args:
        one: the role.
        work: the run.
        base_config: of the image that the layers go onto.
        ready: told of each layer and whose it is.
        shared: records that other machines see too.
        compression: instead of the spec's.
        contexts: layers of files from the context that roles of this run share.
        subject: what progress calls the layers; by default what the shared stages are called.
    """
    settings = work.settings
    release = python_release(base_config, one.image.plan.locked.variant.python)

    def store() -> WheelStore:
        from builder.wheels import WheelStore

        return WheelStore(settings)

    def interpreter(python: str) -> Interpreter | None:
        from builder.direct.bytecode import find_interpreter

        return find_interpreter(python, settings.environ, release)

    paths = WheelPaths(store, work.progress)
    try:
        yield Workshop(
            cache=LayerCache(settings.cache / "layers", shared),
            wheel_path=paths.path,
            find_interpreter=interpreter,
            compression=compression or Compression(work.inputs.spec_file.spec.compression),
            mtime=settings.source_date_epoch or MTIME,
            ready=lambda layer: ready(layer, subject or one.subject),
            expect=paths.expect,
            contexts=contexts or Once(),
        )
    finally:
        paths.close()


def python_release(base_config: bytes, python: str) -> str | None:
    """The full version of the image's Python, where its environment says so, as Docker's official images do."""
    release = runtime.environment(read_config(base_config).get("config") or {}).get("PYTHON_VERSION", "")
    return release if release.startswith(f"{python}.") else None
