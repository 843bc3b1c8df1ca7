"""Makes an image of stages that need no engine: the base's config and manifest in, a whole DirectImage out.

Nothing of the base but those two documents is read. Layers come from the context, from the wheels, or
from what is remembered of either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct import stage_plan
from training_imgtool.direct.filesystem import base_folders
from training_imgtool.direct.image import image
from training_imgtool.direct.image.image import DirectImage, History
from training_imgtool.direct.layers.context_layers import context_layer
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.stage_plan import Material, State, Step
from training_imgtool.direct.wheels.layer_tools import Workshop
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.registry.manifests import Manifest


def build_image(
    dockerfile: Dockerfile,
    stages: tuple[Stage, ...],
    material: Material,
    shop: Workshop,
    *,
    base: Manifest,
    base_config: bytes,
    created: int = 0,
) -> DirectImage:
    """Executes `stages` (of `stage_plan.chain`) on top of an image.

    Args:
        dockerfile: the whole file.
        stages: lowest first; the lowest starts from `base`.
        material: the context, the lock and what is left out.
        shop: what layers are made with.
        base: the manifest of the image that the lowest stage starts from, for one platform.
        base_config: the bytes of its config.
        created: what the config says, in seconds since 1970.

    Raises:
        NeedsEngineError: the result cannot be proven the same as an engine's; nothing was published.
        VerificationError: the base or a wheel is not what its digest says.
        InputError: the context changed; LocalFileError: something cannot be read or written.
    """
    steps, state = planned(dockerfile, stages, material, base_config)
    history = tuple(_history(steps, material, shop, set(image.read_config(base_config)["rootfs"]["diff_ids"])))
    return image.assemble(base, base_config, state.settings, history, created=created)


def planned(
    dockerfile: Dockerfile, stages: tuple[Stage, ...], material: Material, base_config: bytes
) -> tuple[tuple[Step, ...], State]:
    """Every step of `stages`, and the state at the end; pure. Raises NeedsEngineError as `build_image` does."""
    settings: dict[str, Any] = image.read_config(base_config).get("config") or {}
    lowest = stages[0]
    below = []
    stage = dockerfile.earlier(lowest.base, lowest)
    while stage:
        below.append(stage)
        stage = dockerfile.earlier(stage.base, stage)
    state = State(settings, base_folders(settings, stage_plan.texts_below(tuple(below))))
    steps: list[Step] = []
    for stage in stages:
        made, state = stage_plan.plan_stage(dockerfile, stage, state, material)
        steps += made
    return tuple(steps), state


def _history(steps: tuple[Step, ...], material: Material, shop: Workshop, below: set[str]) -> Iterator[History]:
    """A line per layer and per instruction without one. No layer is there twice: some clusters fail on that."""
    previous = ""
    for step in steps:
        layers = _layers(step, material, shop)
        if not layers or [layer.diff_id for layer in layers] == [previous]:
            yield History(text=step.text)
            continue
        for layer in layers:
            if layer.diff_id in below:
                raise NeedsEngineError(f"{step.text}: the same layer is below already")
            below.add(layer.diff_id)
            yield History(text=layer.history, layer=layer)
        previous = layers[-1].diff_id


def _layers(step: Step, material: Material, shop: Workshop) -> tuple[LayerSource, ...]:
    if step.wheels:
        from training_imgtool.direct.wheels.wheel_layers import packages_layers

        return packages_layers(material.locked, material.exclude, shop)
    if step.files is None:
        return ()
    layer = context_layer(
        step.files.items, step.files.hashes, step.text, cache=shop.cache, mtime=shop.mtime, once=shop.contexts
    )
    shop.ready(layer)
    return (layer,)
