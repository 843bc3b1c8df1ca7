"""What imgtool knows of releases and requirements, as the project reader asks for it."""

from __future__ import annotations

from pathlib import Path

from imgtool_project_reader.knowledge import Fault, Knowledge, Release, Texts, Variant
from training_imgtool.base.errors import FieldError, InputError
from training_imgtool.base.yamlfile.reader import parse
from training_imgtool.base.yamlfile.tree import to_plain
from training_imgtool.model.requirement_files import read_requirement_files
from training_imgtool.model.requirements import parse_requirements
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.versions import resolve
from training_imgtool.resolve.versions.matrix import Matrix
from training_imgtool.resolve.versions.rules import limit_pythons, usable_pythons
from training_imgtool.resolve.versions.rules_requirements import check_lines, check_requirements

_PLATFORM = "linux/amd64"


def make_knowledge(matrix: Matrix) -> Knowledge:
    """Makes what the project reader asks for out of the version matrix and the rules of requirements."""
    releases = {
        version: Release(
            pythons=usable_pythons(release, _PLATFORM),
            is_recommended=version == minor.recommended,
            has_cuda_wheels=bool(minor.and_cuda),
            requires=minor.requires,
        )
        for minor in matrix.minors.values()
        for version, release in minor.releases.items()
    }

    def find_fault(texts: Texts, variant: Variant) -> Fault | None:
        minor, release = matrix.release(variant.tensorflow)
        try:
            named = parse_requirements(texts)
            limit_pythons(release, texts, variant.python)
        except InputError as error:
            return Fault(error.message, error.message)
        chosen = resolve.resolve(_spec_of(variant.tensorflow, variant.python, variant.accelerator), matrix).variants[0]
        found = check_requirements(named, chosen, minor, release, platform=_PLATFORM, cuda_base=False)
        errors = (finding for finding in (*check_lines(texts), *found) if not finding.warning)
        return next((Fault(finding.message, finding.hint) for finding in errors), None)

    def choose_python(tensorflow: str, python: str | None, accelerator: str) -> str:
        try:
            return resolve.resolve(_spec_of(tensorflow, python, accelerator), matrix).variants[0].python
        except InputError as error:
            raise ValueError(error.message if isinstance(error, FieldError) else str(error)) from error

    return Knowledge(
        releases=releases,
        resolve=choose_python,
        read_list=_read_list,
        read_yaml=_read_yaml,
        find_fault=find_fault,
    )


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


def _spec_of(tensorflow: str, python: str | None, accelerator: str) -> ImageSpec:
    return ImageSpec(
        name="proposal",
        tensorflow=tensorflow,
        python=python,
        accelerator=Accelerator(accelerator),
        roles={Role.MASTER: RoleSpec()},
    )
