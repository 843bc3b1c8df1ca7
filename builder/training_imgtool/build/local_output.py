"""Direct images that go to no registry: into an OCI layout on disk, or into an engine's store."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from training_imgtool.build.inputs import RoleImage
from training_imgtool.build.request import BuildResult, BuildRun
from training_imgtool.build.role_build import way, workshop
from training_imgtool.build.start_files import StartFiles
from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.core.progress import Done, Outcome, Step
from training_imgtool.core.reference import Repository
from training_imgtool.direct.build import Start, build_image
from training_imgtool.direct.image.docker_archive import load_archive
from training_imgtool.direct.image.image import DirectImage
from training_imgtool.direct.image.oci_layout import write_layout
from training_imgtool.direct.layers.codecs import Compression
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.registry.stored_stages import StoredStages
from training_imgtool.registry.connect import Registries
from training_imgtool.registry.manifests import Descriptor, parse_platform
from training_imgtool.spec.model import Role

if TYPE_CHECKING:
    from training_imgtool.engines import Engine


def write_images(work: BuildRun, folder: Path, registries: Registries) -> tuple[BuildResult, ...]:
    """Makes the wanted images and adds them to the OCI layout in `folder`, named by role.

    Raises NeedsEngineError for a stage that only an engine can build, LocalFileError, and what reading a base raises.
    """
    started = time.monotonic()
    platform = parse_platform(work.inputs.plan.platform)
    named = {"os": platform.os, "architecture": platform.architecture}
    if platform.variant:
        named["variant"] = platform.variant
    with _Making(work, registries) as making:
        images = {image.role: making.image(image) for image in work.wanted}
        for role in images:
            work.progress(Step(role, f"into {folder}"))
        digests = write_layout(folder, {str(role): made for role, made in images.items()}, making.read, named)
    return _results(work, {role: f"oci:{folder}:{role}@{digests[str(role)]}" for role in images}, started)


def load_images(work: BuildRun, engine: Engine, registries: Registries) -> tuple[BuildResult, ...]:
    """Makes the wanted images and loads them into an engine, base layers included; raises as `write_images`."""
    started = time.monotonic()
    places = {}
    with _Making(work, registries, Compression.SPLICE) as making:  # zstd is for engines since 23.0; the ID is the same
        for image in work.wanted:
            name = str(image.tag or f"imgtool/{image.role}:{image.key[:32]}")
            archive = load_archive({name: making.image(image)}, making.read)
            work.progress(Step(image.role, "loading"))
            places[image.role] = engine.load(cast("BinaryIO", io.BufferedReader(_Readable(archive), 1 << 20)))
    return _results(work, places, started)


class _Making:
    """Makes images of all their stages. Their layers can be read until the block ends, which ends what it fetches."""

    def __init__(self, work: BuildRun, registries: Registries, compression: Compression | None = None) -> None:
        self._work = work
        self._registries = registries
        self._compression = compression
        self._stored = StoredStages(registries, work.settings.cache)
        self._files = StartFiles(work, registries, self._stored, None)
        self._bases: dict[str, Repository] = {}
        self._shops = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shops.close()

    def image(self, image: RoleImage) -> DirectImage:
        """One role's image; raises NeedsEngineError with the stage that is for an engine."""
        one = way(self._work.inputs, image)
        if one.chain.start is None:
            label = one.chain.engine_stage.label if one.chain.engine_stage else image.dockerfile.stages[0].label
            raise NeedsEngineError(
                f"{image.role}: the stage {label} is for an engine: {one.chain.reasons.get(label, '')}",
                hint="push to a registry, where an engine builds that stage once",
            )
        base = self._stored.base(one.chain.start, self._work.inputs.plan.platform)
        self._bases |= {layer.digest: one.chain.start.repository for layer in base.manifest.layers}
        making = workshop(one, self._work, base.config, _unheard, compression=self._compression)
        stages = tuple(stage for stage in one.chain.stages if stage.instructions)
        shop = self._shops.enter_context(making)
        start = Start(manifest=base.manifest, config=base.config, files=self._files.of(one))
        return build_image(image.dockerfile, stages, one.material, shop, start=start)

    def read(self, layer: Descriptor) -> Iterator[bytes]:
        """The blocks of a base's layer, verified."""
        repository = self._bases[layer.digest]
        return self._registries.at(repository).blob(repository, layer)


def _unheard(layer: LayerSource, subject: str) -> None:
    """Takes no notice: nothing is sent anywhere."""


def _results(work: BuildRun, places: dict[Role, str], started: float) -> tuple[BuildResult, ...]:
    seconds = time.monotonic() - started
    for role, place in places.items():
        work.progress(Done(role, Outcome.APPENDED, place, seconds))
    return tuple(
        BuildResult(
            role=image.role,
            outcome=Outcome.APPENDED,
            key=image.key,
            tag=image.tag,
            place=places[image.role],
            seconds=seconds,
        )
        for image in work.wanted
    )


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
