"""Decides who makes a role's image: which of its stages imgtool executes, on which parent image, and which an engine.

Where only the base tells what an instruction does, the decision reads the base; nothing is decided later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from training_imgtool.core.errors import NeedsEngineError
from training_imgtool.direct.stage_plan import StageInputs, StageSplit, split_stages
from training_imgtool.dockerfile.apt_step import libraries_to_open
from training_imgtool.dockerfile.parse import Stage
from training_imgtool.pipeline.inputs import Inputs, RoleImage


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleStages:
    """A role's image with the stages that lead to it."""

    image: RoleImage
    inputs: StageInputs
    split: StageSplit

    @property
    def own(self) -> Stage:
        """The role's own stage."""
        return self.split.stages[-1]

    @property
    def shared(self) -> tuple[Stage, ...]:
        """The stages below the role's own that the direct builder executes, without empty ones."""
        return tuple(stage for stage in self.split.stages[:-1] if stage.instructions)

    @property
    def parent_label(self) -> str:
        """The label of the stage that the role's own starts from; empty when that is the base."""
        parent = self.image.dockerfile.earlier(self.own.base, self.own)
        return parent.label if parent else ""

    @property
    def packages(self) -> str:
        """The name of the shared stages in progress output."""
        return f"packages {self.image.plan.locked.variant.name}"

    def require_direct(self) -> None:
        """Raises NeedsEngineError with the reason when the role's own stage needs an engine."""
        if reason := self.split.needs_engine:
            raise NeedsEngineError(reason)


def plan_role(inputs: Inputs, image: RoleImage) -> RoleStages:
    """Plans the stages of an image, as far as that is possible without its base."""
    stage_inputs = make_stage_inputs(inputs, image)
    return RoleStages(image=image, inputs=stage_inputs, split=split_stages(image.dockerfile, image.label, stage_inputs))


def plan_stage_image(inputs: Inputs, image: RoleImage, label: str) -> RoleStages:
    """Plans the image of a stage below the role's own: a role that appends nothing to it."""
    stage_inputs = make_stage_inputs(inputs, image)
    stage = image.dockerfile.stage(label)
    below = split_stages(image.dockerfile, label, stage_inputs)
    top = replace(stage, name=None, index=stage.index + 1, base=label, instructions=())
    return RoleStages(image=image, inputs=stage_inputs, split=replace(below, stages=(*below.stages, top)))


def make_stage_inputs(inputs: Inputs, image: RoleImage) -> StageInputs:
    """Returns what an image's stages are made from, without what makes layers of Debian packages."""
    plan = image.plan
    return StageInputs(
        context=inputs.context, locked=plan.locked, exclude=plan.exclude, libraries=libraries_to_open(plan)
    )
