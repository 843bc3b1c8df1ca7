"""Makes an image of stages that need no engine: the base's config and manifest in, a whole DirectImage out.

Layers come from the context, from the wheels, or from the records of either. What lies in the base decides what an
instruction does; `BaseFiles` reads it when an instruction depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct import stage_plan
from training_imgtool.direct.files import Files
from training_imgtool.direct.image import image
from training_imgtool.direct.image.image import DirectImage, History
from training_imgtool.direct.layers.context_layers import make_context_layer
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.layers.split import MOST_PARTS, split
from training_imgtool.direct.stage_plan import Material, State, Step
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile.parse import Dockerfile, Stage
from training_imgtool.registry.manifests import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What stages begin on.

    Attributes:
        manifest: of the image that layers are added to, for one platform.
        config: the bytes of its config.
        files: what is where in the image that `below` begins on.
        below: the stages, lowest first, that this image has on top of the one that `files` tells of.
        settings: gives the run settings of the image that `files` tells of; called only when a path in `below` may
            depend on them.
    """

    manifest: Manifest
    config: bytes
    files: Files
    below: tuple[Stage, ...] = ()
    settings: Callable[[], Mapping[str, Any]] = dict


def build_image(
    dockerfile: Dockerfile,
    stages: tuple[Stage, ...],
    material: Material,
    tools: LayerTools,
    *,
    start: Start,
    created: int = 0,
) -> DirectImage:
    """Executes `stages` (of `stage_plan.chain`) on top of an image.

    Args:
        dockerfile: the whole file.
        stages: lowest first; the lowest starts from `start`.
        material: the context, the lock and what is left out.
        tools: what layers are made with.
        start: the image that the lowest stage starts from.
        created: what the config says, in seconds since 1970.

    Raises:
        NeedsEngineError: the result cannot be proven the same as an engine's; nothing was published.
        VerificationError: the base or a wheel is not what its digest says.
        InputError: the context changed; LocalFileError: something cannot be read or written.
    """
    steps, state = plan_stages(dockerfile, stages, material, start)
    below = set(image.read_config(start.config)["rootfs"]["diff_ids"])
    history = tuple(_make_history(steps, material, tools, below))
    return image.assemble(start.manifest, start.config, state.settings, history, created=created)


def plan_stages(
    dockerfile: Dockerfile, stages: tuple[Stage, ...], material: Material, start: Start
) -> tuple[tuple[Step, ...], State]:
    """Every step of `stages`, and the state at the end; raises NeedsEngineError as `build_image` does."""
    state = State(start.settings() if any(map(_places_files, start.below)) else {}, start.files)
    for stage in start.below:
        _, state = stage_plan.plan_stage(dockerfile, stage, state, material)
    state = State(image.read_config(start.config).get("config") or {}, state.files)
    steps: list[Step] = []
    for stage in stages:
        planned_steps, state = stage_plan.plan_stage(dockerfile, stage, state, material)
        steps += planned_steps
    return tuple(steps), state


def _places_files(stage: Stage) -> bool:
    """Whether a stage puts files where its base's settings may say, as `COPY x .` does."""
    return any(
        instruction.name in {"ADD", "WORKDIR"} or (instruction.name == "COPY" and instruction.flag("from") is None)
        for instruction in stage.instructions
    )


def _make_history(steps: tuple[Step, ...], material: Material, tools: LayerTools, below: set[str]) -> Iterator[History]:
    """A line per layer and per instruction without one. No layer appears twice: some clusters fail on that."""
    previous: list[str] = []
    copies = sum(step.files is not None for step in steps)
    for step in steps:
        most = min(MOST_PARTS, (image.MOST_LAYERS - len(below)) // max(copies, 1))
        copies -= step.files is not None
        layers = _make_layers(step, material, tools, most)
        if not layers or [layer.diff_id for layer in layers] == previous:
            yield History(text=step.text)
            continue
        for layer in layers:
            if layer.diff_id in below:
                raise NeedsEngineError(f"{step.text}: the same layer is below already")
            below.add(layer.diff_id)
            yield History(text=layer.history, layer=layer)
        previous = [layer.diff_id for layer in layers]


def _make_layers(step: Step, material: Material, tools: LayerTools, most: int) -> tuple[LayerSource, ...]:
    if step.wheels:
        from training_imgtool.direct.wheels.wheel_layers import make_packages_layers

        return make_packages_layers(material.locked, material.exclude, tools)
    if step.debian and material.debian:
        packages = material.debian.layer(step.text, step.debian)
        tools.ready(packages)
        return (packages,)
    if step.files is None:
        return ()
    layers = []
    for part in split(step.files.contents(), most):
        layer = make_context_layer(part, step.text, cache=tools.cache, mtime=tools.mtime, once=tools.contexts)
        tools.ready(layer)
        layers.append(layer)
    return tuple(layers)
