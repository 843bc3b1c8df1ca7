"""Makes an image of stages that need no engine: a parent image in, a whole DirectImage out.

Layers come from the context, from the wheels, or from the records of either. What lies in the base decides what an
instruction does; `BaseReader` reads it when an instruction depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct import stage_plan
from training_imgtool.direct.files import Files
from training_imgtool.direct.image import image
from training_imgtool.direct.image.image import DirectImage, History, StoredImage
from training_imgtool.direct.layers.context_layers import make_context_layer
from training_imgtool.direct.layers.layers import LayerSource
from training_imgtool.direct.layers.split import MOST_PARTS, split
from training_imgtool.direct.stage_plan import StageInputs, State, Step
from training_imgtool.direct.wheels.layer_tools import LayerTools
from training_imgtool.dockerfile.parse import Dockerfile, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentImage:
    """An image that stages are appended to.

    Attributes:
        stored: its manifest and config, and the repository that holds its layers.
        files: what is where in the image that `below` begins on.
        below: the stages, lowest first, that this image has on top of the one that `files` tells of.
        settings: gives the run settings of the image that `files` tells of; called only when a path in `below` may
            depend on them.
    """

    stored: StoredImage
    files: Files
    below: tuple[Stage, ...] = ()
    settings: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class PlannedStages:
    """Every step that executes stages, and the run settings at their end."""

    steps: tuple[Step, ...]
    settings: Mapping[str, Any]


def build_image(planned: PlannedStages, inputs: StageInputs, tools: LayerTools, *, parent: ParentImage) -> DirectImage:
    """Executes planned stages on top of an image.

    Args:
        planned: what `plan_stages` returns for the same inputs and parent image.
        inputs: the context, the lock and what is left out.
        tools: what layers are made with.
        parent: the image that the lowest stage starts from.

    Raises:
        NeedsEngineError: the layers show that only an engine makes this image; nothing was published.
        VerificationError: the base or a wheel is not what its digest says.
        InputError: the context changed; LocalFileError: something cannot be read or written.
    """
    below = set(image.read_config(parent.stored.config)["rootfs"]["diff_ids"])
    history = tuple(_make_history(planned.steps, inputs, tools, below))
    return image.assemble(parent.stored.manifest, parent.stored.config, planned.settings, history)


def plan_stages(
    dockerfile: Dockerfile, stages: tuple[Stage, ...], inputs: StageInputs, parent: ParentImage
) -> PlannedStages:
    """Plans `stages` (of `stage_plan.split_stages`), lowest first, on an image.

    Raises NeedsEngineError when the result cannot be proven the same as an engine's, and what reading the base raises.
    """
    state = State(parent.settings() if any(map(_places_files, parent.below)) else {}, parent.files)
    for stage in parent.below:
        _, state = stage_plan.plan_stage(dockerfile, stage, state, inputs)
    state = State(image.read_config(parent.stored.config).get("config") or {}, state.files)
    steps: list[Step] = []
    for stage in stages:
        planned_steps, state = stage_plan.plan_stage(dockerfile, stage, state, inputs)
        steps += planned_steps
    return PlannedStages(tuple(steps), state.settings)


def _places_files(stage: Stage) -> bool:
    """Returns whether a stage puts files where its base's settings may say, as `COPY x .` does."""
    return any(
        instruction.name in {"ADD", "WORKDIR"} or (instruction.name == "COPY" and instruction.flag("from") is None)
        for instruction in stage.instructions
    )


def _make_history(
    steps: tuple[Step, ...], inputs: StageInputs, tools: LayerTools, below: set[str]
) -> Iterator[History]:
    """Yields a line per layer and per instruction without one. No layer appears twice: some clusters fail on that."""
    previous: list[str] = []
    copies = sum(step.files is not None for step in steps)
    for step in steps:
        most = min(MOST_PARTS, (image.MOST_LAYERS - len(below)) // max(copies, 1))
        copies -= step.files is not None
        layers = _make_layers(step, inputs, tools, most)
        if not layers or [layer.diff_id for layer in layers] == previous:
            yield History(text=step.text)
            continue
        for layer in layers:
            if layer.diff_id in below:
                raise NeedsEngineError(f"{step.text}: the same layer is below already", hint=image.WHOLE_IMAGE_HINT)
            below.add(layer.diff_id)
            yield History(text=layer.history, layer=layer)
        previous = [layer.diff_id for layer in layers]


def _make_layers(step: Step, inputs: StageInputs, tools: LayerTools, most: int) -> tuple[LayerSource, ...]:
    if step.wheels:
        from training_imgtool.direct.wheels.wheel_layers import make_packages_layers

        return make_packages_layers(inputs.locked, inputs.exclude, tools)
    if step.debian and inputs.debian:
        packages = inputs.debian.layer(step.text, step.debian)
        tools.ready(packages)
        return (packages,)
    if step.files is None:
        return ()
    layers = []
    for part in split(step.files.contents(), most):
        layer = make_context_layer(
            part,
            step.text,
            cache=tools.cache,
            compression=tools.compression,
            mtime=tools.mtime,
            once=tools.contexts,
        )
        tools.ready(layer)
        layers.append(layer)
    return tuple(layers)
