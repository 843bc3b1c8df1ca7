"""How one role's image is made directly, and what its layers are made with on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_imgtool.build.inputs import Inputs, RoleImage
from training_imgtool.build.request import BuildRun
from training_imgtool.core.single_flight import SingleFlight
from training_imgtool.direct.image import image_config
from training_imgtool.direct.image.image import read_config
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.context_layers import OnceEach
from training_imgtool.direct.layers.layer_cache import LayerCache, SharedRecords
from training_imgtool.direct.layers.layers import MTIME, LayerSource
from training_imgtool.direct.stage_plan import Chain, Material, chain
from training_imgtool.direct.wheels.layer_tools import Workshop
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.wheels.prefetch import WheelPrefetcher

if TYPE_CHECKING:
    from training_imgtool.direct.wheels.bytecode import Interpreter
    from training_imgtool.wheels.store import WheelStore

Ready = Callable[[LayerSource, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBuild:
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


def way(inputs: Inputs, image: RoleImage) -> RoleBuild:
    """How to make the image directly; raises NeedsEngineError with the reason when it is for an engine."""
    material = Material(context=inputs.context, locked=image.plan.locked, exclude=image.plan.exclude)
    split = chain(image.dockerfile, image.dockerfile.stages[-1].label, material)
    return RoleBuild(image=image, material=material, chain=split)


@contextmanager
def workshop(
    one: RoleBuild,
    work: BuildRun,
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
        from training_imgtool.wheels.store import WheelStore

        return WheelStore(settings)

    def interpreter(python: str) -> Interpreter | None:
        from training_imgtool.direct.wheels.bytecode import find_interpreter

        return find_interpreter(python, settings.environ, release)

    paths = WheelPrefetcher(store, work.progress)
    try:
        yield Workshop(
            cache=LayerCache(settings.cache / "layers", shared, believe=not work.options.no_cache),
            wheel_path=paths.path,
            find_interpreter=interpreter,
            compression=compression or Compression(work.inputs.spec_file.spec.compression),
            mtime=settings.source_date_epoch or MTIME,
            ready=lambda layer: ready(layer, subject or one.subject),
            expect=paths.expect,
            contexts=contexts or SingleFlight(),
        )
    finally:
        paths.close()


def python_release(base_config: bytes, python: str) -> str | None:
    """The full version of the image's Python, where its environment says so, as Docker's official images do."""
    release = image_config.environment(read_config(base_config).get("config") or {}).get("PYTHON_VERSION", "")
    return release if release.startswith(f"{python}.") else None
