"""Every check of one image, in the order of the report."""

from __future__ import annotations

from training_imgtool.build.inputs import RoleImage
from training_imgtool.spec.model import ImageSpec
from training_imgtool.verify.case import Case
from training_imgtool.verify.checks import cuda, left_behind, python, settings, trainer
from training_imgtool.verify.facts import Facts, Finding


def check(image: RoleImage, facts: Facts, spec: ImageSpec) -> tuple[Finding, ...]:
    """Compares what was found with what was planned."""
    case = Case(image=image, facts=facts, spec=spec)
    return (
        *settings.findings(case),
        *python.findings(case),
        *cuda.findings(case),
        *trainer.findings(case),
        *left_behind.findings(case),
    )
