"""Every check of one image, in the order of the report."""

from __future__ import annotations

from builder.inputs import RoleImage
from builder.spec import ImageSpec
from builder.verify import checks_cuda, checks_left, checks_python, checks_settings, checks_trainer
from builder.verify.case import Case
from builder.verify.facts import Facts, Finding


def check(image: RoleImage, facts: Facts, spec: ImageSpec) -> tuple[Finding, ...]:
    """Compares what was found with what was planned."""
    case = Case(image=image, facts=facts, spec=spec)
    return (
        *checks_settings.findings(case),
        *checks_python.findings(case),
        *checks_cuda.findings(case),
        *checks_trainer.findings(case),
        *checks_left.findings(case),
    )
