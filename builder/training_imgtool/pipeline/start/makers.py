"""Who made the stages of an image, imgtool or an engine, by the image's own history and the plan.

imgtool marks its lines of the history with the comment `imgtool`, BuildKit marks its own too. An engine with a store of
its own also runs the stages below the one that it is told to run; a builder starts from images that imgtool makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.direct.image.image import HISTORY_COMMENT
from training_imgtool.dockerfile import install_step
from training_imgtool.dockerfile.mounts import image_names, needed_stages
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.pipeline.builders import plan_stage_image
from training_imgtool.pipeline.inputs import Inputs, RoleImage

_BUILDKIT = "buildkit.dockerfile"  # how its comments begin, whatever the frontend's version


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is known of how an image came to be.

    Attributes:
        direct: imgtool made the role's own stage.
        builder: a builder of buildx ran the last stage that an engine ran, if one ran any.
        compiled: a builder compiled the bytecode of the wheels, since this machine has no such Python.
    """

    direct: bool
    builder: bool
    compiled: bool = False


def read_trace(image: RoleImage, config: Mapping[str, Any]) -> Trace:
    """Reads the trace from an image's config; a line without a known comment is an engine's."""
    lines = [(str(line.get("comment", "")), str(line.get("created_by", ""))) for line in config.get("history") or []]
    command = install_step.compile_command(image.plan.locked)
    own = [comment == HISTORY_COMMENT for comment, _ in lines]
    compiles = [
        number > 0 and own[number - 1] and not own[number] and command in text for number, (_, text) in enumerate(lines)
    ]
    others = [comment for (comment, _), mine, last in zip(lines, own, compiles, strict=True) if not mine and not last]
    return Trace(
        direct=own[-1:] == [True],
        builder=bool(others) and others[-1].startswith(_BUILDKIT),
        compiled=any(compiles),
    )


def list_makers(inputs: Inputs, image: RoleImage, trace: Trace) -> dict[str, bool]:
    """The stages of an image by label, lowest first, each with whether an engine ran it; without empty stages."""
    own = image.dockerfile.stages[-1]
    below = _ran_below(inputs, image, own, trace) if trace.direct else _ran(inputs, image, own, trace)
    engine = {*below, *([own.base] if trace.compiled else [])}
    needed = needed_stages(image.dockerfile, own)
    return {stage.label: stage.label in engine for stage in needed if stage.instructions}


def _ran(inputs: Inputs, image: RoleImage, stage: Stage, trace: Trace) -> Iterator[str]:
    """The labels of what an engine runs that is told to run a stage."""
    if trace.builder:
        yield stage.label
        yield from _ran_below(inputs, image, stage, trace)
    else:
        yield from (needed.label for needed in needed_stages(image.dockerfile, stage))


def _ran_below(inputs: Inputs, image: RoleImage, stage: Stage, trace: Trace) -> Iterator[str]:
    """The labels of what engines run below a stage, where imgtool makes all that it can make."""
    for name in (stage.base, *(name for instruction in stage.instructions for name in image_names(instruction))):
        earlier = image.dockerfile.earlier(name, stage)
        lower = plan_stage_image(inputs, image, earlier.label).chain.engine_stage if earlier else None
        if lower is not None:
            yield from _ran(inputs, image, lower, trace)
