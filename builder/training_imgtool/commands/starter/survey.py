"""What a project already says about its images: Dockerfile, requirements, pyproject.toml. Read, never run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from training_imgtool.commands.job_files.setup_py import read_install_requires
from training_imgtool.commands.starter.clues import Clue, find_newest, read_text
from training_imgtool.commands.starter.dockerfile import ProjectDockerfile
from training_imgtool.commands.starter.programs import Code, read_code
from training_imgtool.core.errors import FieldError, InputError
from training_imgtool.spec.console_scripts import read_console_scripts
from training_imgtool.spec.requirements import list_code, parse_requirements, read_requirement_files
from training_imgtool.versions.matrix import Matrix
from training_imgtool.wheels.import_names import DISTRIBUTIONS

_PACKAGES = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})
_PROJECT = "pyproject.toml"
_WITH_TENSORFLOW = frozenset(  # import names of what each release depends on
    """absl astunparse flatbuffers gast google google_pasta grpc h5py keras libclang ml_dtypes numpy opt_einsum
    packaging requests setuptools pkg_resources six tensorboard tensorflow tensorflow_estimator termcolor
    typing_extensions urllib3 werkzeug wrapt""".split()  # noqa: SIM905 - a table of words reads best so
)
_REQUIREMENT_FILES = ("requirements.txt", "requirements/requirements.txt", "requirements/base.txt", "requirements.in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a folder says.

    Attributes:
        files: those that were read, for people.
        unknown_tensorflow: a requirement that no release known to imgtool satisfies.
        gpu: the line that asks for CUDA.
        system_packages: Debian packages that its Dockerfile installs.
        requirements: the file that names them: a requirements file, otherwise pyproject.toml.
        python_packages: requirements that no such file has, and the file that does.
        unlisted: the first names of imports for which there seems to be no requirement.
        arguments: those that the Dockerfile starts the program with.
    """

    files: tuple[str, ...]
    code: Code
    name: str | None
    tensorflow: Clue | None
    unknown_tensorflow: str | None
    python: Clue | None
    gpu: str | None
    system_packages: tuple[str, ...]
    requirements: str | None
    python_packages: tuple[Clue, ...]
    unlisted: tuple[str, ...]
    arguments: tuple[str, ...]


def survey(folder: Path, matrix: Matrix) -> Survey:
    """Reads what `folder` has; a file that cannot be understood says nothing."""
    docker = ProjectDockerfile(folder / "Dockerfile")
    own = next((name for name in (*docker.requirement_files(), *_REQUIREMENT_FILES) if (folder / name).is_file()), None)
    listed = _requirements(folder, own or _PROJECT)
    requirements = own or (_PROJECT if listed or _is_built(folder / _PROJECT) else None)
    further = () if requirements else (*docker.packages(), *_of_setup(folder / "setup.py"))
    named = (*listed, *(Requirement(clue.value) for clue in further))
    code = read_code(folder, docker.command(), _scripts(folder))
    read = dict.fromkeys(("Dockerfile", _PROJECT, requirements or "", *(clue.where for clue in further)))
    where = requirements or next((clue.where for clue in further), "")
    return Survey(
        files=tuple(name for name in read if (folder / name).is_file()),
        code=code,
        name=_project_name(folder / _PROJECT),
        tensorflow=_tensorflow(named, where, matrix) or docker.tensorflow(matrix),
        unknown_tensorflow=_unknown_tensorflow(named, where, matrix),
        python=docker.python(),
        gpu=docker.gpu() or _gpu(named, where),
        system_packages=docker.system_packages(),
        requirements=requirements,
        python_packages=tuple(clue for clue in further if not _is_tensorflow(Requirement(clue.value))),
        unlisted=() if requirements and not listed else _find_unlisted(_not_in_code(folder, own, code.missing), named),
        arguments=docker.arguments(),
    )


def _scripts(folder: Path) -> dict[str, str]:
    try:
        return read_console_scripts(folder)
    except FieldError:
        return {}


def _of_setup(path: Path) -> tuple[Clue, ...]:
    return tuple(Clue(text, path.name) for text in read_install_requires(path, with_tensorflow=True) or ())


def _is_built(path: Path) -> bool:
    """Whether a pyproject.toml leaves its dependencies to the project's build, as Poetry's does."""
    try:
        document = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return "build-system" in document and "project" not in document and "tool" in document


def _is_tensorflow(item: Requirement) -> bool:
    return item.name.lower() in _PACKAGES


def _unknown_tensorflow(requirements: Iterable[Requirement], where: str, matrix: Matrix) -> str | None:
    items = [item for item in requirements if _is_tensorflow(item) and item.specifier]
    return next((f"{where}: {item}" for item in items if not _tensorflow([item], where, matrix)), None)


def _gpu(requirements: Iterable[Requirement], where: str) -> str | None:
    for item in requirements:
        if item.name.lower() == "tensorflow-gpu" or (_is_tensorflow(item) and "and-cuda" in item.extras):
            return f"{where}: {item}"
    return None


def _find_unlisted(names: Iterable[str], requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """The imports that neither TensorFlow nor a requirement of about that name brings."""
    listed = [canonicalize_name(item.name) for item in requirements]

    def is_listed(name: str) -> bool:
        likely = canonicalize_name(DISTRIBUTIONS.get(name, name))
        return any(item == likely or item.startswith((f"{likely}-", canonicalize_name(name))) for item in listed)

    return tuple(name for name in names if name not in _WITH_TENSORFLOW and not is_listed(name))


def _not_in_code(folder: Path, requirements: str | None, names: Iterable[str]) -> tuple[str, ...]:
    """The imports that no folder has which the requirements file names, such as `-e ../common`."""
    try:
        code = list_code(read_requirement_files(folder, requirements)) if requirements else ()
    except InputError:
        code = ()
    tops = [folder / source.path / inner for source in code if not source.is_git for inner in ("", "src")]
    return tuple(
        name for name in names if not any((top / name).exists() or (top / f"{name}.py").exists() for top in tops)
    )


def _requirements(folder: Path, name: str) -> tuple[Requirement, ...]:
    try:
        return tuple(named.requirement for named in parse_requirements(read_requirement_files(folder, name)))
    except InputError:
        return ()


def _project_name(path: Path) -> str | None:
    try:
        name = tomllib.loads(read_text(path)).get("project", {}).get("name")
    except (tomllib.TOMLDecodeError, AttributeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _tensorflow(requirements: Iterable[Requirement], where: str, matrix: Matrix) -> Clue | None:
    """The newest release of the matrix that the requirements allow; None when they do not restrict it."""
    for item in requirements:
        if item.name.lower() in _PACKAGES and item.specifier:
            return find_newest(matrix, item.specifier.contains, f"{where}: {item.name}{item.specifier}")
    return None
