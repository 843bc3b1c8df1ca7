"""The findings of a run as a table, as plain data, and as one line per mismatch."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_imgtool.core.sanitize import join_lines, sanitize_line
from training_imgtool.pipeline.inputs import RoleImage
from training_imgtool.spec.model import Role
from training_imgtool.verify.facts import Facts, Finding, Layer, Status

LARGEST = 10
_WHOLE = frozenset(Status) - {Status.OK}
_NARROWEST = 20  # columns of text
_SPLIT_OVER = 0.05  # of the image: a folder above that is shown as what is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReport:
    """One role's image with all findings about it."""

    role: Role
    image: str
    findings: tuple[Finding, ...]
    layers: tuple[Layer, ...]
    directories: tuple[tuple[str, int], ...]  # the largest, disjoint, with their unpacked bytes
    complete: bool  # whether the directories are those of the whole image

    @classmethod
    def of(cls, image: RoleImage, facts: Facts, findings: tuple[Finding, ...]) -> ImageReport:
        """Findings with the sizes that go with them."""
        return cls(
            role=image.role,
            image=facts.image,
            findings=findings,
            layers=facts.layers,
            directories=find_largest(facts.tree.folders),
            complete=facts.tree.complete,
        )


def find_largest(folders: Mapping[str, int], most: int = LARGEST) -> tuple[tuple[str, int], ...]:
    """Finds the largest folders, none inside another: one that is large because of what is below it gives way to that.

    `folders` has the bytes below each folder. What lies right in a folder that gave way counts as `FOLDER/*`.
    """
    total = folders.get("", 0)
    children: dict[str, list[str]] = {}
    for folder in folders:
        if folder:
            children.setdefault(folder.rpartition("/")[0], []).append(folder)
    pieces: dict[str, int] = {}
    queue = [""] if total else []
    while queue:
        folder = queue.pop()
        below = children.get(folder, [])
        if folders[folder] <= total * _SPLIT_OVER or not below:
            pieces[f"/{folder}"] = folders[folder]
            continue
        queue += below
        rest = folders[folder] - sum(folders[child] for child in below)
        if rest > 0:
            pieces[f"/{folder}/*".replace("//", "/")] = rest
    ordered = sorted(pieces.items(), key=lambda piece: (-piece[1], piece[0]))
    return tuple(ordered[:most])


def list_mismatches(reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Lists mismatches, a line each."""
    return tuple(
        f"{finding.role}: {finding.check}: found {finding.found}; expected {finding.expected}"
        for report in reports
        for finding in report.findings
        if finding.status is Status.MISMATCH
    )


def list_unproven(reports: tuple[ImageReport, ...]) -> tuple[str, ...]:
    """Lists checks, a line each, that have to be made and could not be."""
    return tuple(
        f"{finding.role}: {finding.check}: not proven: {finding.found} ({finding.expected})"
        for report in reports
        for finding in report.findings
        if finding.status is Status.UNPROVEN
    )


def as_text(reports: tuple[ImageReport, ...], width: int | None = None) -> str:
    """Formats the table, then each image's largest folders. What is the same for several roles stands there once.

    With a width, what is well is cut there, and what is not goes on in the next line.
    """
    merged: dict[tuple[str, str, str, str], list[str]] = {}
    for report in reports:
        for finding in report.findings:
            merged.setdefault((finding.check, str(finding.status), finding.found, finding.expected), []).append(
                str(finding.role)
            )
    order = list(dict.fromkeys(finding.check for report in reports for finding in report.findings))
    rows = [("CHECK", "ROLE", "RESULT", "FOUND (EXPECTED)")]
    for (check, status, found, expected), roles in sorted(merged.items(), key=lambda row: order.index(row[0][0])):
        rows.append(
            (
                check,
                _name_roles(roles, reports),
                status,
                " ".join(filter(None, (found, f"({expected})" * bool(expected)))),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        start = "".join(f"{cell:<{most}}  " for cell, most in zip(row, widths, strict=False))
        parts = (
            textwrap.wrap(row[3], max(_NARROWEST, width - len(start)))
            if width and row[2] in _WHOLE and row[3]
            else [row[3]]
        )
        lines += [(start if number == 0 else " " * len(start)) + part for number, part in enumerate(parts)]
    folders: dict[tuple[tuple[tuple[str, int], ...], bool], list[str]] = {}
    for report in reports:
        folders.setdefault((report.directories, report.complete), []).append(str(report.role))
    for (directories, complete), roles in folders.items():
        what = "largest folders" if complete else "largest folders of the layers that were read"
        lines += ["", f"{_name_roles(roles, reports)}: {what}"]
        lines += [f"  {size / 1e6:9.1f} MB  {sanitize_line(folder)}" for folder, size in directories]
    return "\n".join(_cut(line.rstrip(), width) for line in lines) + "\n"


def _cut(line: str, width: int | None) -> str:
    return f"{line[: width - 1]}…" if width and len(line) > width else line


def _name_roles(roles: list[str], reports: tuple[ImageReport, ...]) -> str:
    return "all" if len(roles) == len(reports) > 1 else ",".join(dict.fromkeys(roles))


def as_data(reports: tuple[ImageReport, ...]) -> list[dict[str, Any]]:
    """Returns the reports for `--json`, with every layer."""
    return [
        {
            "role": str(report.role),
            "image": report.image,
            "ok": all(finding.status not in {Status.MISMATCH, Status.UNPROVEN} for finding in report.findings),
            "checks": [
                {
                    "check": finding.check,
                    "status": str(finding.status),
                    "found": finding.found,
                    "expected": finding.expected,
                }
                for finding in report.findings
            ],
            "layers": [
                {
                    "digest": layer.digest or None,
                    "bytes": layer.size,
                    "of_base": not layer.own,
                    "made_by": join_lines(layer.history, limit=200),
                }
                for layer in report.layers
            ],
            "directories": [{"path": folder, "bytes": size} for folder, size in report.directories],
            "directories_complete": report.complete,
        }
        for report in reports
    ]
