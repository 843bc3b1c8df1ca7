"""What a project's own Dockerfile says: bases, packages, how a container starts."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from training_imgtool.commands.starter.clues import Clue, find_newest, read_text
from training_imgtool.core.errors import InputError
from training_imgtool.dockerfile.parse import Instruction, parse
from training_imgtool.versions.matrix import Matrix

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
        """The release of the TensorFlow image that it starts from."""
        for image in self._images:
            if match := _IMAGE.fullmatch(image):
                fits = SpecifierSet(f"=={match['version']}" + ("" if match["version"].count(".") == 2 else ".*"))
                return find_newest(matrix, fits.contains, f"Dockerfile: FROM {image}")
        return None

    def python(self) -> Clue | None:
        """The version of the Python image that it starts from."""
        matches = ((image, _PYTHON_IMAGE.fullmatch(image)) for image in self._images)
        return next((Clue(match["python"], f"Dockerfile: FROM {image}") for image, match in matches if match), None)

    def gpu(self) -> str | None:
        """The line that asks for CUDA."""
        for image in self._images:
            match = _IMAGE.fullmatch(image)
            if (match and match["gpu"]) or _CUDA_IMAGE.fullmatch(image):
                return f"Dockerfile: FROM {image}"
        return None

    def command(self) -> tuple[str, ...]:
        """The words that a container starts with."""
        return tuple(
            word for name in ("ENTRYPOINT", "CMD") if name in self._starts for word in self._starts[name].words
        )

    def arguments(self) -> tuple[str, ...]:
        """The words behind the program; none if a shell would change them."""
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
        """The requirements that it names on pip's command line."""
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
        """The files that it gives to pip, by their name in the project."""
        for words in self._pip_words():
            for option, value in itertools.pairwise(words):
                if option in {"-r", "--requirement"} and _FILE_NAME.fullmatch(value):
                    yield value
                    yield PurePosixPath(value).name

    def system_packages(self) -> tuple[str, ...]:
        """The Debian packages that it installs."""
        words = {word for run in self._runs for match in _APT.finditer(run) for word in match["words"].split()}
        return tuple(sorted(word for word in words if _DEBIAN.fullmatch(word)))
