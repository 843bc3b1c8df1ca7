"""Formats the findings of a run: as a table, as plain data, and as one line for each failed check."""

from __future__ import annotations

import textwrap
from typing import Any

from training_imgtool.verify.findings import ImageReport, Status

FAILING = frozenset({Status.MISMATCH, Status.UNPROVEN})
_NARROWEST = 20  # columns of text


def list_failures(reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Lists the failed checks, one line each, mismatches first."""
    lines = [
        (
            finding.status,
            f"{report.role}: {finding.check}: {_describe(finding.status, finding.found, finding.expected)}",
        )
        for report in reports
        for finding in report.findings
        if finding.status in FAILING
    ]
    return tuple(line for _, line in sorted(lines, key=lambda pair: pair[0] is Status.UNPROVEN))


def list_accepted(reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Lists the findings that the user accepted, one line each."""
    rows = ((report.role, finding) for report in reports for finding in report.findings)
    lines = (f"{role}: {finding.check}: {finding.found}" for role, finding in rows if finding.status is Status.ACCEPTED)
    return tuple(dict.fromkeys(lines))


def _describe(status: Status, found: str, expected: str) -> str:
    return f"not proven: {found}" if status is Status.UNPROVEN else f"found {found}; expected {expected}"


def as_text(reports: tuple[ImageReport, ...], width: int | None = None) -> str:
    """Formats the table. A finding that several roles share appears once.

    If `width` is set, the table cuts longer lines of passed checks, and wraps longer lines of other checks.
    """
    merged: dict[tuple[str, Status, str, str], list[str]] = {}
    for report in reports:
        for finding in report.findings:
            key = (finding.check, finding.status, finding.found, finding.expected)
            merged.setdefault(key, []).append(str(report.role))
    order = list(dict.fromkeys(finding.check for report in reports for finding in report.findings))
    rows = [("CHECK", "ROLE", "RESULT", "FOUND (EXPECTED)")]
    for (check, status, found, expected), roles in sorted(merged.items(), key=lambda row: order.index(row[0][0])):
        rows.append((check, _name_roles(roles, reports), status, f"{found} ({expected})" if expected else found))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        start = "".join(f"{cell:<{most}}  " for cell, most in zip(row, widths, strict=False))
        wraps = width and row[2] in FAILING and row[3]
        parts = textwrap.wrap(row[3], max(_NARROWEST, width - len(start))) if width and wraps else [row[3]]
        lines += [(start if number == 0 else " " * len(start)) + part for number, part in enumerate(parts)]
    return "\n".join(_cut(line.rstrip(), width) for line in lines) + "\n"


def _cut(line: str, width: int | None) -> str:
    return f"{line[: width - 1]}…" if width and len(line) > width else line


def _name_roles(roles: list[str], reports: tuple[ImageReport, ...]) -> str:
    return "all" if len(roles) == len(reports) > 1 else ",".join(dict.fromkeys(roles))


def as_data(reports: tuple[ImageReport, ...]) -> list[dict[str, Any]]:
    """Returns the reports for `--json`."""
    return [
        {
            "role": str(report.role),
            "image": str(report.image),
            "ok": all(finding.status not in FAILING for finding in report.findings),
            "checks": [
                {
                    "check": finding.check,
                    "status": str(finding.status),
                    "found": finding.found,
                    "expected": finding.expected,
                }
                for finding in report.findings
            ],
        }
        for report in reports
    ]
