"""Passes what imgtool knows about releases and requirements to the reader of projects."""

from __future__ import annotations

from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imgtool_project_reader.knowledge import Fault, Knowledge, Release, Texts, Variant
from training_imgtool.base.errors import FieldError, ImgtoolError, InputError
from training_imgtool.base.settings import Settings
from training_imgtool.base.yamlfile.reader import parse
from training_imgtool.base.yamlfile.tree import to_plain
from training_imgtool.model.frameworks import JAX
from training_imgtool.model.requirement_files import read_requirement_files
from training_imgtool.model.requirements import parse_requirements
from training_imgtool.model.spec import Accelerator, ImageSpec, Role, RoleSpec
from training_imgtool.resolve.versions import resolve
from training_imgtool.resolve.versions.matrix import Matrix
from training_imgtool.resolve.versions.rules import limit_pythons, usable_pythons
from training_imgtool.resolve.versions.rules_requirements import check_lines, check_requirements
from training_imgtool.resolve.wheels.store import WheelStore

_PLATFORM = "linux/amd64"


def make_knowledge(matrix: Matrix, settings: Settings | None = None) -> Knowledge:
    """Makes the `Knowledge` for the reader of projects from the version matrix and the rules of requirements."""
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
        of = _spec_of(variant.tensorflow, variant.python, variant.accelerator)
        minor, release = matrix.release(of.release)
        try:
            named = parse_requirements(texts)
            if variant.jax:
                found = check_lines(texts)
                return next((Fault(finding.message, finding.hint) for finding in found), None)
            limit_pythons(release, texts, variant.python, of.framework)
        except InputError as error:
            return Fault(error.message, error.message)
        chosen = resolve.resolve(of, matrix).variants[0]
        found = check_requirements(named, chosen, minor, release, platform=_PLATFORM, cuda_base=False)
        errors = (finding for finding in (*check_lines(texts), *found) if not finding.warning)
        return next((Fault(finding.message, finding.hint) for finding in errors), None)

    def choose_python(release: str, python: str | None, accelerator: str) -> str:
        try:
            return resolve.resolve(_spec_of(release, python, accelerator), matrix).variants[0].python
        except InputError as error:
            raise ValueError(error.message if isinstance(error, FieldError) else str(error)) from error

    return Knowledge(
        releases=releases,
        resolve=choose_python,
        read_list=_read_list,
        read_yaml=_read_yaml,
        find_fault=find_fault,
        find_jax=lambda limit: _find_newest("jax", limit, settings) or JAX.example,
    )


def _find_newest(package: str, limit: str, settings: Settings | None) -> str | None:
    """Returns the newest release of a package within a limit; None if the index has none, or does not answer."""
    exact = [part.version for part in SpecifierSet(limit) if part.operator == "==" and part.version.count(".") == 2]
    if settings is None or exact:
        return next((version for version in exact if "*" not in version), None)
    try:
        files = WheelStore(settings).index.files(package)
    except ImgtoolError:
        return None
    names = {file.file.split("-")[1] for file in files if file.file.endswith(".whl")}
    fitting = [*SpecifierSet(limit).filter(names)]
    return max(fitting, key=Version, default=None)


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


def _spec_of(release: str, python: str | None, accelerator: str) -> ImageSpec:
    return ImageSpec(
        name="proposal",
        tensorflow=release,
        python=python,
        accelerator=Accelerator(accelerator),
        roles={Role.MASTER: RoleSpec()},
    )
