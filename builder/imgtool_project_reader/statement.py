"""Defines statements, which are the facts that a project's files state, each with its place and its certainty."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

_LINUX = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "extra": "",
}
_WHEEL_ELSEWHERE = re.compile(
    r" ?@ ?file:\S*/[\w.]+-(\d[\w.!]*)(?:(?:\+|%2B)[\w.]+)?(?:-\d\w*)?-[\w.]+-\w+-[\w.]+\.whl\b.*"
)
_PYTHONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


class Fact(StrEnum):
    """The subject of a statement, and the format of its value."""

    TENSORFLOW = "TensorFlow"  # a specifier set of releases
    JAX = "JAX"  # a specifier set of releases; empty if a file names no release
    TORCH = "PyTorch"  # as for JAX
    PYTHON = "Python"  # a specifier set
    PACKAGE = "package"  # a requirement
    PINNED = "locked"  # a requirement that only limits packages that other statements install
    GPU = "accelerator"  # the words that ask for CUDA
    SYSTEM = "system package"  # a Debian package
    COMMAND = "command"  # words that start a program, after `cd FOLDER &&` if they run in another folder
    INSTALL = "installs"  # the file or folder that a command installs
    INCLUDE = "includes"  # another file of the same requirements
    UNREAD = "not understood"  # a line that is no requirement
    BUILD = "PyTorch's build"  # cpu, or cu and the digits of a version of CUDA; cu alone if no file names the version
    LAUNCH = "launcher"  # torchrun and its options, before a program
    OPTION = "index option"  # a line of a requirements file that names a place with wheels
    BOUND = "index"  # the name of a package, and the name of its only index
    SCRIPT = "console script"  # NAME=MODULE:FUNCTION
    NAME = "name"  # the project's name


class Certainty(IntEnum):
    """How far to trust a statement."""

    GUESS = 0  # concluded from code or prose
    HINT = 1  # for another purpose, such as a variant or another kind of image
    STATED = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact.

    Attributes:
        value: the value, in the format of this kind of fact.
        file: the path relative to the project.
        line: the line in the file; 0 for a statement about the whole file.
        group: the extra or the dependency group of a package; empty for packages that are always installed.
    """

    fact: Fact
    value: str
    file: str
    line: int = 0
    certainty: Certainty = Certainty.STATED
    group: str = ""

    @property
    def place(self) -> str:
        """The file and the line, such as `requirements.txt:3`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def requirement(self) -> Requirement:
        """The value of a PACKAGE or PINNED statement, parsed."""
        return Requirement(self.value)

    @property
    def package(self) -> str:
        """The normalised package name of a PACKAGE or PINNED statement."""
        return canonicalize_name(self.requirement.name)


def is_dockerfile(file: str) -> bool:
    """Tells whether a path names a Dockerfile, in any usual spelling."""
    return "dockerfile" in file.lower() or file.endswith("Containerfile")


def parse_requirement(text: str) -> Requirement | None:
    """Parses a requirement as `pip freeze`, conda or people write it; returns None for any other text.

    For `NAME @ file:///…`, returns the name, with the version of a wheel, because the path is on another machine.
    `NAME=1.2=BUILD` and `NAME==1.2+BUILD` mean `NAME==1.2`.
    """
    plain = " ".join(text.split())  # so that no expression below tries each place of a long run of blanks
    plain = re.sub(r" --(?:hash|config-settings?|global-option)\b.*", "", plain)
    plain = _WHEEL_ELSEWHERE.sub(r"==\1", plain)
    plain = re.sub(r" ?@ ?file:.*", "", plain)
    plain = re.sub(r"^([\w.-]+)=([\w.]+)(?:=[\w.]+)?$", r"\1==\2", plain)
    plain = re.sub(r"(==\s*\d[\w.!]*)\+[\w.]+", r"\1", plain)
    try:
        return Requirement(plain)
    except InvalidRequirement:
        return None


def applies(requirement: Requirement, *pythons: str) -> bool:
    """Tells whether a requirement applies on Linux for one of `pythons`; by default, for any Python."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({**_LINUX, "python_version": python, "python_full_version": f"{python}.9"})
        for python in pythons or _PYTHONS
    )


def parse_specifier(text: str) -> SpecifierSet | None:
    """Parses a limit on versions; None if the text is not a limit."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def caret(text: str) -> str:
    """Translates one version limit of Poetry or npm (`^1.2`, `~1.2`, `1.2`, `*`) to a specifier set of PEP 440.

    Source: https://python-poetry.org/docs/dependency-specification/
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return ",".join(filter(None, map(_caret, parts)))


def _caret(text: str) -> str:
    match = re.fullmatch(r"([\^~])=?\s*(\d+(?:\.\d+)*)([\w.+-]*)", text)
    if match is None:
        return "" if text == "*" else f"=={text}" if text[0].isdigit() else text
    numbers = [int(part) for part in match[2].split(".")]
    if match[1] == "~":
        kept = min(len(numbers), 2)
    else:
        kept = next((index + 1 for index, number in enumerate(numbers) if number), len(numbers))
    upper = [*numbers[: kept - 1], numbers[kept - 1] + 1]
    return f">={match[2]}{match[3]},<{'.'.join(map(str, upper))}"
