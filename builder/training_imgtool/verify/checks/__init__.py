"""The checks of `imgtool verify`, a module per group; `check` makes them all, in the order of the report."""

from __future__ import annotations

from dataclasses import replace

from training_imgtool.context.context import Context
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.spec.model import Ignore, ImageSpec
from training_imgtool.verify.case import Case, shorten
from training_imgtool.verify.checks import cuda, left_behind, python, settings, trainer
from training_imgtool.verify.facts import Facts, Finding, Status


def check(image: RoleImage, facts: Facts, spec: ImageSpec, context: Context) -> tuple[Finding, ...]:
    """Compares the facts with the plan and the context; applies `verify.ignore`."""
    case = Case(image=image, facts=facts, spec=spec, context=context)
    findings = (
        *settings.make_findings(case),
        *python.make_findings(case),
        *cuda.make_findings(case),
        *trainer.make_findings(case),
        *left_behind.make_findings(case),
    )
    return tuple(apply_ignores(finding, spec.verify.ignore) for finding in findings)


def apply_ignores(finding: Finding, ignores: tuple[Ignore, ...]) -> Finding:
    """Returns a mismatch without the complaints that the spec ignores; without any left it is a warning.

    What is not proven counts as one.
    """
    if finding.status not in {Status.MISMATCH, Status.UNPROVEN}:
        return finding
    complaints, reasons = list(finding.complaints or (finding.found,)), []
    for ignore in ignores:
        if ignore.check == finding.check:
            rest = [text for text in complaints if ignore.match is not None and ignore.match not in text]
            reasons += [ignore.reason] if len(rest) < len(complaints) else []
            complaints = rest
    if complaints:
        return replace(finding, found=shorten(complaints)) if reasons else finding
    return replace(finding, status=Status.WARNING, expected=f"ignored: {'; '.join(reasons)}")
