"""Splits a stage so that a remote builder gets no wheels: what copies the wheels' layers stays direct."""

from __future__ import annotations

from dataclasses import replace

from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import image_names
from training_imgtool.dockerfile.parse import Dockerfile, Instruction, Stage
from training_imgtool.pipeline.content_key import stage_keys
from training_imgtool.pipeline.inputs import Inputs, RoleImage, debian_runs

_LOWER = "{}-wheels"


def split_wheels(inputs: Inputs, image: RoleImage, label: str) -> RoleImage:
    """The image with the stage `label` split after its last COPY from a stage that installs wheels.

    The lower part becomes a stage `LABEL-wheels` with a key of its own; all other keys stay. An image whose stage
    copies no wheels comes back as it is, and so does one whose stages name others by number.
    """
    dockerfile = image.dockerfile
    stage = dockerfile.stage(label)
    cut = _after_wheels(dockerfile, stage)
    name = _LOWER.format(label)
    if not cut or any(other.name == name for other in dockerfile.stages) or _has_numbers(dockerfile):
        return image
    lower = replace(stage, name=name, instructions=stage.instructions[:cut])
    upper = replace(stage, base=name, instructions=stage.instructions[cut:])
    stages = [*dockerfile.stages[: stage.index], lower, upper, *dockerfile.stages[stage.index + 1 :]]
    split = replace(dockerfile, stages=tuple(replace(each, index=number) for number, each in enumerate(stages)))
    compression, runs = inputs.plan.compression, debian_runs(image.plan)
    keys = stage_keys(split, inputs.context, inputs.plan.platform, compression, runs)
    return replace(image, dockerfile=split, keys={**image.keys, name: keys[name]})


def _after_wheels(dockerfile: Dockerfile, stage: Stage) -> int:
    """The number of instructions up to the last one that copies from a stage with wheels; 0 when there is none."""
    cut = 0
    for number, instruction in enumerate(stage.instructions, 1):
        source = instruction.flag("from") if instruction.name == "COPY" else None
        earlier = dockerfile.earlier(source, stage) if source is not None else None
        if earlier is not None and any(copies_wheels(other) for other in earlier.instructions):
            cut = number
    return cut


def copies_wheels(instruction: Instruction) -> bool:
    """Whether an instruction takes wheels from the context."""
    if instruction.name not in {"ADD", "COPY"} or instruction.flag("from") is not None:
        return False
    return any(source.strip("/").split("/")[0] == install_step.context_root() for source in instruction.sources)


def _has_numbers(dockerfile: Dockerfile) -> bool:
    """Whether a stage is named by its number, which a split would change."""
    names = [stage.base for stage in dockerfile.stages]
    names += [name for stage in dockerfile.stages for step in stage.instructions for name in image_names(step)]
    return any(name.isdecimal() for name in names)
