"""What a project already says about its images: Dockerfile, requirements, pyproject.toml. Read, never run."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from training_imgtool.commands.job_files.setup_py import read_install_requires
from training_imgtool.commands.starter.programs import Code, read_code
from training_imgtool.core.errors import FieldError, InputError
from training_imgtool.dockerfile.parse import Instruction, parse
from training_imgtool.spec.entry_point import read_console_scripts
from training_imgtool.spec.requirements import list_code, parse_requirements, read_requirement_files
from training_imgtool.versions.matrix import Matrix, version_key
from training_imgtool.wheels.import_names import DISTRIBUTIONS

_LARGEST = 1 << 20  # bytes
_PACKAGES = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})
_PROJECT = "pyproject.toml"
_WITH_TENSORFLOW = frozenset(  # import names of what each release depends on
    """absl astunparse flatbuffers gast google google_pasta grpc h5py keras libclang ml_dtypes numpy opt_einsum
    packaging requests setuptools pkg_resources six tensorboard tensorflow tensorflow_estimator termcolor
    typing_extensions urllib3 werkzeug wrapt""".split()  # noqa: SIM905 - a table of words reads best so
)
_REQUIREMENT_FILES = ("requirements.txt", "requirements/requirements.txt", "requirements/base.txt", "requirements.in")
_PIP_OPTIONS = frozenset(  # those that a value follows
    """-r --requirement -c --constraint -i --index-url --extra-index-url -f --find-links -t --target --trusted-host
    --timeout --prefix --root --cache-dir -e --editable""".split()  # noqa: SIM905
)
_TOOLS = frozenset({"pip", "setuptools", "wheel"})
_FILE_NAME = re.compile(r"(?!/|.*\.\.)[\w./-]+")
_PATH, _DIGEST = r"(?:[\w.:/-]+/)?", r"(?:@[\w:]+)?"
_IMAGE = re.compile(_PATH + r"tensorflow:(?P<version>\d+\.\d+(?:\.\d+)?)(?P<gpu>-gpu)?[\w.-]*" + _DIGEST)
_PYTHON_IMAGE = re.compile(_PATH + r"python:(?P<python>3\.\d+)[\w.-]*" + _DIGEST)
_CUDA_IMAGE = re.compile(_PATH + r"nvidia/cuda:[\w.-]+" + _DIGEST)
_PIP = re.compile(r"\bpip3?\s+install\s+(?P<words>[^;&|]+)")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_APT = re.compile(r"apt(?:-get)?\s+(?:-\S+\s+)*install\s+(?P<words>[^;&|]+)")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class Clue:
    """A value and the line or file that says it."""

    value: str
    source: str


def read_text(path: Path) -> str:
    """Returns the text of a file; empty when it is missing, too large, or not text."""
    try:
        return path.read_text(encoding="utf-8-sig") if path.is_file() and path.stat().st_size <= _LARGEST else ""
    except (OSError, UnicodeDecodeError):
        return ""


def find_newest(matrix: Matrix, fits: Callable[[str], bool], source: str) -> Clue | None:
    """Returns the newest release that fits, a recommended one of its minor first."""
    minors = sorted(matrix.minors.values(), key=lambda minor: version_key(minor.name), reverse=True)
    for minor in minors:
        for version in (minor.recommended, *sorted(minor.releases, key=version_key, reverse=True)):
            if fits(version):
                return Clue(version, source)
    return None


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
    read = dict.fromkeys(("Dockerfile", _PROJECT, requirements or "", *(clue.source for clue in further)))
    source = requirements or next((clue.source for clue in further), "")
    return Survey(
        files=tuple(name for name in read if (folder / name).is_file()),
        code=code,
        name=_project_name(folder / _PROJECT),
        tensorflow=_tensorflow(named, source, matrix) or docker.tensorflow(matrix),
        unknown_tensorflow=_unknown_tensorflow(named, source, matrix),
        python=docker.python(),
        gpu=docker.gpu() or _gpu(named, source),
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
    """Returns whether a pyproject.toml leaves its dependencies to the project's build, as Poetry's does."""
    try:
        document = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    return "build-system" in document and "project" not in document and "tool" in document


def _is_tensorflow(item: Requirement) -> bool:
    return item.name.lower() in _PACKAGES


def _unknown_tensorflow(requirements: Iterable[Requirement], source: str, matrix: Matrix) -> str | None:
    items = [item for item in requirements if _is_tensorflow(item) and item.specifier]
    return next((f"{source}: {item}" for item in items if not _tensorflow([item], source, matrix)), None)


def _gpu(requirements: Iterable[Requirement], source: str) -> str | None:
    for item in requirements:
        if item.name.lower() == "tensorflow-gpu" or (_is_tensorflow(item) and "and-cuda" in item.extras):
            return f"{source}: {item}"
    return None


def _find_unlisted(names: Iterable[str], requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """Finds the imports that neither TensorFlow nor a requirement of about that name brings."""
    listed = [canonicalize_name(item.name) for item in requirements]

    def is_listed(name: str) -> bool:
        likely = canonicalize_name(DISTRIBUTIONS.get(name, name))
        return any(item == likely or item.startswith((f"{likely}-", canonicalize_name(name))) for item in listed)

    return tuple(name for name in names if name not in _WITH_TENSORFLOW and not is_listed(name))


def _not_in_code(folder: Path, requirements: str | None, names: Iterable[str]) -> tuple[str, ...]:
    """Finds the imports that no folder has which the requirements file names, such as `-e ../common`."""
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


def _tensorflow(requirements: Iterable[Requirement], source: str, matrix: Matrix) -> Clue | None:
    """Returns the newest release of the matrix that the requirements allow; None when they do not restrict it."""
    for item in requirements:
        if item.name.lower() in _PACKAGES and item.specifier:
            return find_newest(matrix, item.specifier.contains, f"{source}: {item.name}{item.specifier}")
    return None


class ProjectDockerfile:
    """What the project's own Dockerfile says; nothing when there is none, or none that can be read."""

    def __init__(self, path: Path) -> None:
        self._images: list[str] = []
        self._runs: list[str] = []
        self._starts: dict[str, Instruction] = {}  # the last ENTRYPOINT and CMD
        try:
            stages = parse(read_text(path), file=path.name).stages
        except InputError:
            stages = ()
        for stage in stages:
            self._images.append(stage.base)
            self._runs += [item.text for item in stage.instructions if item.name == "RUN" and item.json is None]
            self._starts |= {item.name: item for item in stage.instructions if item.name in {"ENTRYPOINT", "CMD"}}

    def tensorflow(self, matrix: Matrix) -> Clue | None:
        """Returns the release of the TensorFlow image that it starts from."""
        for image in self._images:
            if match := _IMAGE.fullmatch(image):
                fits = SpecifierSet(f"=={match['version']}" + ("" if match["version"].count(".") == 2 else ".*"))
                return find_newest(matrix, fits.contains, f"Dockerfile: FROM {image}")
        return None

    def python(self) -> Clue | None:
        """Returns the version of the Python image that it starts from."""
        matches = ((image, _PYTHON_IMAGE.fullmatch(image)) for image in self._images)
        return next((Clue(match["python"], f"Dockerfile: FROM {image}") for image, match in matches if match), None)

    def gpu(self) -> str | None:
        """Returns the line that asks for CUDA."""
        for image in self._images:
            match = _IMAGE.fullmatch(image)
            if (match and match["gpu"]) or _CUDA_IMAGE.fullmatch(image):
                return f"Dockerfile: FROM {image}"
        return None

    def command(self) -> tuple[str, ...]:
        """Returns the words that a container starts with."""
        return tuple(
            word for name in ("ENTRYPOINT", "CMD") if name in self._starts for word in self._starts[name].words
        )

    def arguments(self) -> tuple[str, ...]:
        """Returns the words behind the program; none if a shell would change them."""
        words = self.command()
        if not words or not _PYTHON.fullmatch(words[0]) or any(item.json is None for item in self._starts.values()):
            return ()
        rest = [*itertools.dropwhile(lambda word: word.startswith("-") and word != "-m", words[1:])]
        return tuple(rest[2:] if rest[:1] == ["-m"] else rest[1:])

    def _pip_words(self) -> Iterator[list[str]]:
        for run in self._runs:
            for match in _PIP.finditer(run):
                with suppress(ValueError):  # an open quote
                    yield shlex.split(match["words"])

    def packages(self) -> tuple[Clue, ...]:
        """Returns the requirements that it names on pip's command line."""
        clues = []
        for words in self._pip_words():
            values = {number + 1 for number, word in enumerate(words) if word in _PIP_OPTIONS}
            for number, word in enumerate(words):
                if number in values or word.startswith("-"):
                    continue
                with suppress(InvalidRequirement):
                    item = Requirement(word)
                    if item.name not in _TOOLS and item.url is None:
                        clues.append(Clue(str(item), "Dockerfile"))
        return tuple(dict.fromkeys(clues))

    def requirement_files(self) -> Iterator[str]:
        """Yields the files that it gives to pip, by their name in the project."""
        for words in self._pip_words():
            for option, value in itertools.pairwise(words):
                if option in {"-r", "--requirement"} and _FILE_NAME.fullmatch(value):
                    yield value
                    yield PurePosixPath(value).name

    def system_packages(self) -> tuple[str, ...]:
        """Returns the Debian packages that it installs."""
        words = {word for run in self._runs for match in _APT.finditer(run) for word in match["words"].split()}
        return tuple(sorted(word for word in words if _DEBIAN.fullmatch(word)))
