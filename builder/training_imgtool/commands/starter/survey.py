"""What a project already says about its images: Dockerfile, requirements, pyproject.toml. Read, never run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from training_imgtool.commands.starter.programs import Code, read_code
from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.parse import parse
from training_imgtool.spec.requirements import parse_requirements, read_requirement_files
from training_imgtool.versions.matrix import Matrix, version_key

_PACKAGES = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})
_PROJECT = "pyproject.toml"
_REQUIREMENT_FILES = ("requirements.txt", "requirements/requirements.txt", "requirements/base.txt", "requirements.in")
_LARGEST = 1 << 20  # bytes
_PATH, _DIGEST = r"(?:[\w.:/-]+/)?", r"(?:@[\w:]+)?"
_IMAGE = re.compile(_PATH + r"tensorflow:(?P<version>\d+\.\d+(?:\.\d+)?)(?P<gpu>-gpu)?[\w.-]*" + _DIGEST)
_PYTHON_IMAGE = re.compile(_PATH + r"python:(?P<python>3\.\d+)[\w.-]*" + _DIGEST)
_CUDA_IMAGE = re.compile(_PATH + r"nvidia/cuda:[\w.-]+" + _DIGEST)
_APT = re.compile(r"apt(?:-get)?\s+(?:-\S+\s+)*install\s+(?P<words>[^;&|]+)")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class Clue:
    """A value and the line or file that says it."""

    value: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a folder says.

    Attributes:
        files: those that were read, for people.
        gpu: the line that asks for CUDA.
        system_packages: Debian packages that its Dockerfile installs.
        requirements: the file that names them: a requirements file, otherwise pyproject.toml.
    """

    files: tuple[str, ...]
    code: Code
    name: str | None
    tensorflow: Clue | None
    python: Clue | None
    gpu: str | None
    system_packages: tuple[str, ...]
    requirements: str | None


def survey(folder: Path, matrix: Matrix) -> Survey:
    """Reads what `folder` has; a file that cannot be understood says nothing."""
    requirements = next((name for name in _REQUIREMENT_FILES if (folder / name).is_file()), None)
    listed = _requirements(folder, requirements) if requirements else _requirements(folder, _PROJECT)
    requirements = requirements or (_PROJECT if listed else None)
    docker = _Dockerfile(folder / "Dockerfile")
    read = dict.fromkeys(("Dockerfile", _PROJECT, requirements or ""))
    return Survey(
        files=tuple(name for name in read if (folder / name).is_file()),
        code=read_code(folder),
        name=_project_name(folder / _PROJECT),
        tensorflow=_tensorflow(listed, requirements or "", matrix) or docker.tensorflow(matrix),
        python=docker.python(),
        gpu=docker.gpu(),
        system_packages=docker.system_packages(),
        requirements=requirements,
    )


def _requirements(folder: Path, name: str) -> tuple[Requirement, ...]:
    try:
        return tuple(named.requirement for named in parse_requirements(read_requirement_files(folder, name)))
    except InputError:
        return ()


def _project_name(path: Path) -> str | None:
    try:
        name = tomllib.loads(_text(path)).get("project", {}).get("name")
    except (tomllib.TOMLDecodeError, AttributeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _text(path: Path) -> str:
    """The text of a file; empty when it is missing, too large, or not text."""
    try:
        return path.read_text(encoding="utf-8-sig") if path.is_file() and path.stat().st_size <= _LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _tensorflow(requirements: Iterable[Requirement], where: str, matrix: Matrix) -> Clue | None:
    """The newest release of the matrix that the requirements allow; None when they do not restrict it."""
    for item in requirements:
        if item.name.lower() in _PACKAGES and item.specifier:
            return _newest(matrix, item.specifier.contains, f"{where}: {item.name}{item.specifier}")
    return None


def _newest(matrix: Matrix, fits: Callable[[str], bool], where: str) -> Clue | None:
    """The newest release that fits, a recommended one of its minor first."""
    minors = sorted(matrix.minors.values(), key=lambda minor: version_key(minor.name), reverse=True)
    for minor in minors:
        for version in (minor.recommended, *sorted(minor.releases, key=version_key, reverse=True)):
            if fits(version):
                return Clue(version, where)
    return None


class _Dockerfile:
    """What the project's own Dockerfile says; nothing when there is none, or none that can be read."""

    def __init__(self, path: Path) -> None:
        self._images: list[str] = []
        self._runs: list[str] = []
        try:
            stages = parse(_text(path), file=path.name).stages
        except InputError:
            stages = ()
        for stage in stages:
            self._images.append(stage.base)
            self._runs += [item.text for item in stage.instructions if item.name == "RUN" and item.json is None]

    def tensorflow(self, matrix: Matrix) -> Clue | None:
        for image in self._images:
            if match := _IMAGE.fullmatch(image):
                fits = SpecifierSet(f"=={match['version']}" + ("" if match["version"].count(".") == 2 else ".*"))
                return _newest(matrix, fits.contains, f"Dockerfile: FROM {image}")
        return None

    def python(self) -> Clue | None:
        matches = ((image, _PYTHON_IMAGE.fullmatch(image)) for image in self._images)
        return next((Clue(match["python"], f"Dockerfile: FROM {image}") for image, match in matches if match), None)

    def gpu(self) -> str | None:
        for image in self._images:
            match = _IMAGE.fullmatch(image)
            if (match and match["gpu"]) or _CUDA_IMAGE.fullmatch(image):
                return f"Dockerfile: FROM {image}"
        return None

    def system_packages(self) -> tuple[str, ...]:
        words = {word for run in self._runs for match in _APT.finditer(run) for word in match["words"].split()}
        return tuple(sorted(word for word in words if _DEBIAN.fullmatch(word)))
