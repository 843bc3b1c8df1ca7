"""Direct images that go to no registry: into an OCI layout on disk, or into an engine's store."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from builder.direct.archive import load_archive
from builder.direct.build import build_image
from builder.direct.image import DirectImage
from builder.direct.layers import LayerSource
from builder.direct.layout import write_layout
from builder.direct.stored import StoredStages
from builder.direct.unproven import UnprovenError
from builder.direct_way import Way, way, workshop
from builder.progress import Done, Outcome, Step
from builder.registry.connect import Registries
from builder.registry.manifests import Descriptor, parse_platform
from builder.spec import Role
from builder.work import Built, Work

if TYPE_CHECKING:
    from builder.engines import Engine


def write_images(work: Work, folder: Path, registries: Registries) -> tuple[Built, ...]:
    """Makes the wanted images and adds them to the OCI layout in `folder`, named by role.

    Raises UnprovenError for a stage that only an engine can build, LocalFileError, and what reading a base raises.
    """
    started = time.monotonic()
    made = {image.role: _made(work, way(work.inputs, image), registries) for image in work.wanted}
    platform = parse_platform(work.inputs.plan.platform)
    named = {"os": platform.os, "architecture": platform.architecture}
    if platform.variant:
        named["variant"] = platform.variant
    for role in made:
        work.progress(Step(role, f"into {folder}"))
    images = {str(role): image for role, image in made.items()}
    digests = write_layout(folder, images, _Bases(work, registries, made).read, named)
    return _results(work, {role: f"oci:{folder}:{role}@{digests[str(role)]}" for role in made}, started)


def load_images(work: Work, engine: Engine, registries: Registries) -> tuple[Built, ...]:
    """Makes the wanted images and loads them into an engine, base layers included."""
    started = time.monotonic()
    places = {}
    for image in work.wanted:
        made = {image.role: _made(work, way(work.inputs, image), registries)}
        name = str(image.tag or f"imgtool/{image.role}:{image.key[:32]}")
        archive = load_archive({name: made[image.role]}, _Bases(work, registries, made).read)
        work.progress(Step(image.role, "loading"))
        places[image.role] = engine.load(cast("BinaryIO", io.BufferedReader(_Readable(archive), 1 << 20)))
    return _results(work, places, started)


def _made(work: Work, one: Way, registries: Registries) -> DirectImage:
    if one.chain.engine_stage is not None or one.chain.start is None:
        label = one.chain.engine_stage.label if one.chain.engine_stage else "base"
        raise UnprovenError(
            f"{one.image.role}: the stage {label} is for an engine: {one.chain.reasons.get(label, '')}",
            hint="push to a registry, where an engine builds that stage once",
        )
    base = StoredStages(registries, work.settings.cache).base(one.chain.start)
    stages = tuple(stage for stage in one.chain.stages if stage.instructions)
    with workshop(one, work, base.config, _unheard) as shop:
        return build_image(
            one.image.dockerfile, stages, one.material, shop, base=base.manifest, base_config=base.config
        )


def _unheard(layer: LayerSource, subject: str) -> None:
    """Takes no notice: nothing is sent anywhere."""


def _results(work: Work, places: dict[Role, str], started: float) -> tuple[Built, ...]:
    seconds = time.monotonic() - started
    for role, place in places.items():
        work.progress(Done(role, Outcome.APPENDED, place, seconds))
    return tuple(
        Built(
            role=image.role,
            outcome=Outcome.APPENDED,
            key=image.key,
            tag=image.tag,
            place=places[image.role],
            seconds=seconds,
        )
        for image in work.wanted
    )


class _Bases:
    """Reads layers of the images' bases, each from the repository that it is in."""

    def __init__(self, work: Work, registries: Registries, made: dict[Role, DirectImage]) -> None:
        self._registries = registries
        self._where = {
            layer.digest: image.plan.base.repository
            for image in work.wanted
            if image.role in made
            for layer in made[image.role].base_layers
        }

    def read(self, layer: Descriptor) -> Iterator[bytes]:
        """The layer's blocks, verified."""
        repository = self._where[layer.digest]
        return self._registries.at(repository).blob(repository, layer)


class _Readable(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills `buffer` with what comes next; 0 at the end."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
