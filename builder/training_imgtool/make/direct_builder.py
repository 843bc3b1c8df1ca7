"""Appends stages to a parent image, without a daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from training_imgtool.base.threads import SingleFlight
from training_imgtool.make.request import BuildRun
from training_imgtool.make.run_wheels import check_closed, open_wheel_store
from training_imgtool.model.recipe.recipe import PACKAGES, SYSTEM, Stage
from training_imgtool.oci.direct.build import ParentImage, PlannedStages, build_image, plan_stages
from training_imgtool.oci.direct.debian_layer import DebianLayer
from training_imgtool.oci.image import image_config
from training_imgtool.oci.image.image import DirectImage, read_config
from training_imgtool.oci.layers.codecs import Compression
from training_imgtool.oci.layers.context_layers import OnceEach
from training_imgtool.oci.layers.layer_cache import LayerCache
from training_imgtool.oci.layers.layers import MTIME, LayerSource
from training_imgtool.oci.registry.failures import BlobUnknownError
from training_imgtool.oci.wheel_layers.layer_tools import LayerTools
from training_imgtool.plan.inputs import RoleImage
from training_imgtool.resolve.wheels.prefetch import WheelPrefetcher

if TYPE_CHECKING:
    from training_imgtool.base.interpreters import Interpreter

Send = Callable[[LayerSource, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """Stages of an image, and the plan for appending them to the parent image."""

    image: RoleImage
    parent: ParentImage
    planned: PlannedStages
    debian: DebianLayer | None
    cache: LayerCache

    def is_lost(self, error: BlobUnknownError) -> bool:
        """Tells whether the error names layers of the parent image as missing, or does not name the missing blobs."""
        layers = {layer.digest for layer in self.parent.stored.manifest.layers}
        return not error.digests or bool(set(error.digests) & layers)


class DirectBuilder:
    """Appends stages for one run. Thread-safe.

    Args:
        run: the run.
        compression: how to compress the layers, instead of the spec's choice.
        send: receives each layer as soon as it is made, with the name of its image; several threads call it.
    """

    def __init__(self, run: BuildRun, compression: Compression | None = None, send: Send | None = None) -> None:
        self._run = run
        self._compression = compression or Compression(run.inputs.spec.compression)
        self._send = send
        self._context_layers: OnceEach = SingleFlight()  # the roles of this run share them

    def new_cache(self) -> LayerCache:
        """Returns a view of the machine's layer cache; the view remembers the records that it returned."""
        return LayerCache(self._run.machine.settings.cache / "layers", use_cache=not self._run.options.no_cache)

    def plan(self, image: RoleImage, parent: ParentImage, stages: tuple[Stage, ...], cache: LayerCache) -> Appending:
        """Plans stages on a parent image; raises NeedsEngineError if only an engine can execute the stages there."""
        is_here = any(stage.name in {SYSTEM, PACKAGES} for stage in stages)
        locked = image.recipe.debian
        debian = self.open_debian(image, cache) if is_here and locked is not None and not locked.engine else None
        planned = plan_stages(image.recipe, stages, parent, debian)
        return Appending(image=image, parent=parent, planned=planned, debian=debian, cache=cache)

    @contextmanager
    def append(self, appending: Appending, subject: str) -> Iterator[DirectImage]:
        """Makes the image; you can read its layers until the block ends.

        Args:
            appending: what `plan` returns.
            subject: what progress output calls the layers.

        Raises what `oci.direct.build.build_image` raises.
        """
        settings = self._run.machine.settings
        python = appending.image.locked.variant.python
        release = python_release(appending.parent.stored.config, python)

        def find_interpreter(python: str) -> Interpreter | None:
            from training_imgtool.resolve.wheels import interpreters

            return interpreters.find_interpreter(python, settings.environ, release)

        wheels = WheelPrefetcher(partial(open_wheel_store, self._run.inputs, settings), self._run.machine.progress)
        tools = LayerTools(
            cache=appending.cache,
            wheel_path=wheels.path,
            find_interpreter=find_interpreter,
            release=release,
            compression=self._compression,
            mtime=settings.source_date_epoch or MTIME,
            ready=partial(self._send_layer, subject),
            expect=wheels.expect,
            contexts=self._context_layers,
            library=appending.parent.library,
        )
        try:
            recipe, planned = appending.image.recipe, appending.planned
            image = build_image(recipe, planned, tools, appending.debian, parent=appending.parent)
            if planned.has_wheels:
                check_closed(self._run.inputs, appending.image.locked, settings)
            yield image
        finally:
            wheels.close()

    def _send_layer(self, subject: str, layer: LayerSource) -> None:
        if self._send is not None:
            self._send(layer, subject)

    def open_debian(self, image: RoleImage, cache: LayerCache) -> DebianLayer:
        """Returns a LayerMaker for the image's Debian packages."""
        from training_imgtool.plan.debian_stage import open_layer

        return open_layer(image.recipe, self._run.machine, cache, self._compression)


def python_release(base_config: bytes, python: str) -> str | None:
    """Returns the full version of the image's Python if the environment of the base's config contains it."""
    release = image_config.read_environment(read_config(base_config).get("config") or {}).get("PYTHON_VERSION", "")
    return release if release.startswith(f"{python}.") else None
