"""Builders: each makes a role's image from its inputs, and hands it to a sink.

`DirectBuilder` executes the Dockerfile without a daemon. Where only a stage below the role's own needs an engine, the
engine runs that stage and the rest stays direct. `EngineBuilder` has an engine execute the whole Dockerfile.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.progress import Done, Outcome, Step
from training_imgtool.core.reference import Repository
from training_imgtool.core.threads import SingleFlight
from training_imgtool.direct.build import Start, build_image
from training_imgtool.direct.image import image_config
from training_imgtool.direct.image.image import DirectImage, read_config
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.context_layers import OnceEach
from training_imgtool.direct.layers.layer_cache import LayerCache, SharedRecords
from training_imgtool.direct.layers.layers import MTIME, LayerSource
from training_imgtool.direct.stage_plan import Chain, Material, split_stages
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile.apt_step import libraries_to_open
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.pipeline.inputs import Inputs, RoleImage
from training_imgtool.pipeline.request import BuildResult, BuildRun
from training_imgtool.pipeline.run_wheels import open_wheel_store, read_linked_packages
from training_imgtool.registry.failures import BlobUnknownError
from training_imgtool.spec.model import Role
from training_imgtool.wheels.prefetch import WheelPrefetcher

if TYPE_CHECKING:
    from training_imgtool.core.interpreters import Interpreter
    from training_imgtool.direct.debian_layer import DebianLayer
    from training_imgtool.pipeline.engine.engines import Engines

Send = Callable[[LayerSource, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBuild:
    """A role's image with the stages that lead to it."""

    image: RoleImage
    material: Material
    chain: Chain

    @property
    def own(self) -> Stage:
        """The role's own stage."""
        return self.chain.stages[-1]

    @property
    def shared(self) -> tuple[Stage, ...]:
        """The stages below the role's own that the direct builder executes, without empty ones."""
        return tuple(stage for stage in self.chain.stages[:-1] if stage.instructions)

    @property
    def parent(self) -> str:
        """The label of the stage that the role's own starts from; empty when that is the base."""
        parent = self.image.dockerfile.earlier(self.own.base, self.own)
        return parent.label if parent else ""

    @property
    def packages(self) -> str:
        """The name of the shared stages in progress output."""
        return f"packages {self.image.plan.locked.variant.name}"


@dataclass(frozen=True, slots=True)
class StartImage:
    """An image to append to, the repository that holds its layers, and the stages to execute on it."""

    image: Start
    repository: Repository
    stages: tuple[Stage, ...]

    def lacks(self, error: BlobUnknownError) -> bool:
        """Whether the registry misses layers of this image, or does not name what it misses."""
        return not error.digests or bool(set(error.digests) & {layer.digest for layer in self.image.manifest.layers})


class StartImages(Protocol):
    """Finds the image that a role is appended to. Thread-safe."""

    @abstractmethod
    def start(self, role: RoleBuild, lost: StartImage | None = None) -> StartImage:
        """Returns the image; with `lost`, an earlier answer that the registry no longer has, makes it again."""

    def close(self, *, failed: bool) -> None:
        """Ends the work in the background: waits for it, or gives it up when the run failed."""
        del failed


class Sink(Protocol):
    """Receives the images of one run. Thread-safe."""

    starts: StartImages  # what direct images are appended to
    compression: Compression | None = None  # of their layers, instead of the spec's
    at_once: int = 8  # how many images the sink receives side by side

    @abstractmethod
    def find(self, images: tuple[RoleImage, ...]) -> Mapping[Role, BuildResult]:
        """Returns the images that the sink has already."""

    def answer(self, image: RoleImage) -> BuildResult | None:
        """Waits for the answer to a request that `find` left under way; None when the sink lacks the image."""
        del image
        return None

    def send(self, layer: LayerSource, subject: str) -> None:
        """Takes a layer as soon as it is made."""
        del layer, subject

    @abstractmethod
    def receive(self, image: RoleImage, made: DirectImage, start: StartImage) -> BuildResult:
        """Takes a direct image, which was appended to `start`."""

    @abstractmethod
    def receive_from_engine(self, image: RoleImage, engines: Engines) -> BuildResult:
        """Has an engine build an image and takes it."""

    def finish(self, results: Sequence[BuildResult]) -> None:
        """Gives the images their further names, once all have arrived."""
        del results

    def close(self, *, failed: bool) -> None:
        """Ends the work in the background."""
        del failed


class Builder(Protocol):
    """Makes a role's image. Thread-safe."""

    def make(self, image: RoleImage) -> BuildResult:
        """Makes the image and hands it to the sink."""


class EngineBuilder:
    """Has an engine execute every stage."""

    def __init__(self, sink: Sink, engines: Engines) -> None:
        self._sink = sink
        self._engines = engines

    def make(self, image: RoleImage) -> BuildResult:
        """Raises BuildFailedError, EngineUnavailableError, InputError, and what the sink raises."""
        started = time.monotonic()
        result = self._sink.receive_from_engine(image, self._engines)
        return replace(result, seconds=time.monotonic() - started)


class DirectBuilder:
    """Appends layers to the image that the sink starts from."""

    def __init__(self, run: BuildRun, sink: Sink) -> None:
        self._run = run
        self._sink = sink
        self._context_layers: OnceEach = SingleFlight()

    def make(self, image: RoleImage) -> BuildResult:
        """Raises NeedsEngineError when only an engine can make the image, and what the sink raises."""
        started = time.monotonic()
        role = plan_role(self._run.inputs, image)
        start = self._sink.starts.start(role)
        self._run.progress(Step(image.role, "appending"))
        try:
            result = self._append(role, start)
        except BlobUnknownError as error:
            if not start.lacks(error):
                raise
            result = self._append(role, self._sink.starts.start(role, lost=start))
        seconds = time.monotonic() - started
        name = str(image.tag) if result.outcome is Outcome.FOUND else result.reference
        self._run.progress(Done(image.role, result.outcome, name, seconds))
        return replace(result, seconds=seconds)

    def _append(self, role: RoleBuild, start: StartImage) -> BuildResult:
        making = append_stages(
            self._run,
            role,
            start,
            self._sink.send,
            subject=role.image.role,
            compression=self._sink.compression,
            context_layers=self._context_layers,
        )
        with making as image:
            return self._sink.receive(role.image, image, start)


def plan_role(inputs: Inputs, image: RoleImage) -> RoleBuild:
    """Plans the image's stages; raises NeedsEngineError with the reason when only an engine can make it."""
    material = _material(inputs, image)
    stages = split_stages(image.dockerfile, image.label, material)
    return RoleBuild(image=image, material=material, chain=stages)


def without_engine(run: BuildRun) -> str:
    """Names what works without an engine, or what needs one."""
    needed = []
    for image in run.wanted:
        try:
            chain = plan_role(run.inputs, image).chain
        except NeedsEngineError as error:
            needed.append(str(error))
            continue
        if stage := chain.engine_stage:
            needed.append(f"stage {stage.label}: {chain.reasons[stage.label]}")
    if needed:
        return f"build where one answers ({needed[0]})"
    return "let imgtool build without one: --push, or --output oci:DIR"


def _material(inputs: Inputs, image: RoleImage) -> Material:
    plan = image.plan
    return Material(context=inputs.context, locked=plan.locked, exclude=plan.exclude, libraries=libraries_to_open(plan))


def plan_stage_image(inputs: Inputs, image: RoleImage, label: str) -> RoleBuild:
    """Plans the image of a stage below the role's own: a role that appends nothing to it."""
    material = _material(inputs, image)
    stage = image.dockerfile.stage(label)
    try:
        below = split_stages(image.dockerfile, label, material)
    except NeedsEngineError as error:
        below = Chain(start=None, engine_stage=stage, stages=(), reasons={label: error.message})
    top = replace(stage, name=None, index=stage.index + 1, base=label, instructions=())
    return RoleBuild(image=image, material=material, chain=replace(below, stages=(*below.stages, top)))


@contextmanager
def append_stages(
    run: BuildRun,
    role: RoleBuild,
    start: StartImage,
    send: Send,
    *,
    subject: str,
    records: SharedRecords | None = None,
    compression: Compression | None = None,
    context_layers: OnceEach | None = None,
    compiles: bool = True,
) -> Iterator[DirectImage]:
    """Executes the stages of `start` on its image; the layers can be read until the block ends.

    Args:
        run: the run.
        role: the role.
        start: the image to append to, and the stages.
        send: takes each layer as soon as it is made, from several threads.
        subject: the name of the layers in progress output.
        records: layer records that other machines share.
        compression: of the layers, instead of the spec's.
        context_layers: layers of context files that the roles of this run share.
        compiles: whether layers of wheels come with bytecode.

    Raises what `direct.build.build_image` raises.
    """
    settings = run.settings
    release = python_release(start.image.config, role.image.plan.locked.variant.python)

    def find_interpreter(python: str) -> Interpreter | None:
        from training_imgtool.core import interpreters

        return interpreters.find_interpreter(python, settings.environ, release)

    wheels = WheelPrefetcher(partial(open_wheel_store, run.inputs, settings), run.progress)
    cache = LayerCache(settings.cache / "layers", records, believe=not run.options.no_cache)
    packing = compression or Compression(run.inputs.plan.compression)
    tools = LayerTools(
        cache=cache,
        wheel_path=wheels.path,
        find_interpreter=find_interpreter,
        compression=packing,
        mtime=settings.source_date_epoch or MTIME,
        ready=lambda layer: send(layer, subject),
        expect=wheels.expect,
        contexts=context_layers or SingleFlight(),
        compiles=compiles,
    )
    try:
        yield build_image(
            role.image.dockerfile,
            start.stages,
            replace(role.material, debian=_open_debian(run, role, cache, packing)),
            tools,
            start=start.image,
        )
    finally:
        wheels.close()


def _open_debian(run: BuildRun, role: RoleBuild, cache: LayerCache, compression: Compression) -> DebianLayer | None:
    """What makes the layer of the role's Debian packages; None when it has none, or an engine installs them."""
    if role.image.plan.locked.debian is None or role.image.plan.locked.debian.engine:
        return None
    from training_imgtool.pipeline.debian_stage import open_layer

    copies = read_linked_packages(run.inputs.spec_file, run.settings, run.progress)
    return open_layer(role.image.plan, run.settings, cache, compression, run.progress, read_copy=copies)


def python_release(base_config: bytes, python: str) -> str | None:
    """The full version of the image's Python, where its environment names it, as Docker's official images do."""
    release = image_config.read_environment(read_config(base_config).get("config") or {}).get("PYTHON_VERSION", "")
    return release if release.startswith(f"{python}.") else None
