"""Passes what imgtool knows about releases and requirements to the reader of projects."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from imgtool_project_reader.knowledge import Fault, Knowledge, Release, Texts, Variant
from training_imgtool.base.errors import FieldError, ImgtoolError, InputError
from training_imgtool.base.progress import Progress, Step, silent
from training_imgtool.base.settings import Settings
from training_imgtool.base.yamlfile.reader import parse
from training_imgtool.base.yamlfile.tree import to_plain
from training_imgtool.model.frameworks import FRAMEWORKS
from training_imgtool.model.requirement_files import read_requirement_files
from training_imgtool.model.requirements import parse_requirements
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.frameworks import rules_of
from training_imgtool.resolve.versions import resolve
from training_imgtool.resolve.versions.matrix import Matrix, Minor
from training_imgtool.resolve.versions.matrix import Release as Row
from training_imgtool.resolve.versions.rules import limit_pythons, usable_pythons
from training_imgtool.resolve.versions.rules_requirements import check_lines, check_requirements
from training_imgtool.resolve.wheels.store import WheelStore

_PLATFORM = "linux/amd64"
_USUAL_PYTHON = "3.11"
_REPORT_SECONDS = 2.0


def make_knowledge(matrix: Matrix, settings: Settings | None = None, progress: Progress = silent) -> Knowledge:
    """Makes the `Knowledge` for the reader of projects from the version matrix and the rules of requirements."""

    @cache
    def list_rows(key: str) -> dict[str, tuple[Minor, Row]]:
        try:
            index = WheelStore(settings).index if settings else None
            return rules_of(FRAMEWORKS[key]).list_rows(matrix, index) if key in FRAMEWORKS else {}
        except ImgtoolError:  # no index answers
            return {}

    @cache
    def list_releases(key: str) -> dict[str, Release]:
        return {
            version: Release(
                pythons=usable_pythons(release, _PLATFORM),
                is_recommended=version == minor.recommended,
                has_cuda_wheels=bool(minor.and_cuda),
                requires=minor.requires,
            )
            for version, (minor, release) in list_rows(key).items()
        }

    def find_fault(texts: Texts, variant: Variant) -> Fault | None:
        row = list_rows(variant.framework.key).get(variant.release)
        try:
            named = parse_requirements(texts)
            if row is None:
                found = check_lines(texts)
                return next((Fault(finding.message, finding.hint) for finding in found), None)
            minor, release = row
            of = _spec_of(variant.framework.key, variant.release, variant.python, variant.accelerator)
            limit_pythons(release, texts, variant.python, of.framework)
        except InputError as error:
            return Fault(error.message, error.message)
        chosen = resolve.resolve(of, replace(matrix, learned={of.framework.key: row})).variants[0]
        found = check_requirements(named, chosen, minor, release, platform=_PLATFORM, cuda_base=False)
        errors = (finding for finding in (*check_lines(texts), *found) if not finding.warning)
        return next((Fault(finding.message, finding.hint) for finding in errors), None)

    def choose_python(key: str, release: str, python: str | None, accelerator: str) -> str:
        row = list_rows(key).get(release)
        if row is None:
            return python or _USUAL_PYTHON
        try:
            of = _spec_of(key, release, python, accelerator)
            return resolve.resolve(of, replace(matrix, learned={key: row})).variants[0].python
        except InputError as error:
            raise ValueError(error.message if isinstance(error, FieldError) else str(error)) from error

    return Knowledge(
        list_releases=list_releases,
        resolve=choose_python,
        read_list=_read_list,
        read_yaml=_read_yaml,
        find_fault=find_fault,
        report=_Report(progress),
    )


class _Report:
    """Reports every two seconds which file imgtool reads."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._last = progress, time.monotonic()

    def __call__(self, path: str) -> None:
        if time.monotonic() - self._last > _REPORT_SECONDS:
            self._last = time.monotonic()
            self._progress(Step("project", f"reading {path}"))


def _read_list(folder: Path, file: str, extras: tuple[str, ...]) -> Texts:
    try:
        return read_requirement_files(folder, file, extras=extras)
    except InputError as error:
        raise ValueError(error.message) from error


def _read_yaml(text: str) -> object:
    try:
        return to_plain(parse(text.encode(), ""))
    except InputError as error:
        raise ValueError(error.message) from error


def _spec_of(key: str, release: str, python: str | None, accelerator: str) -> ImageSpec:
    own: dict[str, Any] = {"name": "proposal", key: release, "python": python, "accelerator": Accelerator(accelerator)}
    return ImageSpec(**own, roles={Role.MASTER: RoleSpec()})
