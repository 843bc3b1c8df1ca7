"""What the files of a project state: one fact each, with its place and how sure it is."""

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
_PYTHONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
TENSORFLOW = frozenset({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"})


class Fact(StrEnum):
    """What a statement is about, and the format of its value."""

    TENSORFLOW = "TensorFlow"  # a specifier set of releases
    JAX = "JAX"  # the same of JAX; empty where a file tells no release
    PYTHON = "Python"  # a specifier set
    PACKAGE = "package"  # a requirement
    PINNED = "locked"  # a requirement that counts for what other statements install
    GPU = "accelerator"  # the words that ask for CUDA
    SYSTEM = "system package"  # a Debian package
    COMMAND = "command"  # words that start a program, after `cd FOLDER &&` where they run in another folder
    INSTALL = "installs"  # the file or folder that a command installs
    INCLUDE = "includes"  # a further file of the same requirements
    SCRIPT = "console script"  # NAME=MODULE:FUNCTION
    NAME = "name"  # the project's


class Certainty(IntEnum):
    """How far to trust a statement."""

    GUESS = 0  # concluded from code or prose
    HINT = 1  # meant for another purpose, such as a variant or an image of another kind
    STATED = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact.

    Attributes:
        value: in the format that the fact has.
        file: relative to the project.
        line: in the file; 0 for a statement of the whole file.
        group: the extra or the dependency group that it belongs to; empty for what is always installed.
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
        """The value of a PACKAGE or PINNED."""
        return Requirement(self.value)

    @property
    def package(self) -> str:
        """The normalised name of a PACKAGE or PINNED."""
        return canonicalize_name(self.requirement.name)


def is_dockerfile(file: str) -> bool:
    """Says whether a path is that of a Dockerfile, as people spell it."""
    return "dockerfile" in file.lower() or file.endswith("Containerfile")


def parse_requirement(text: str) -> Requirement | None:
    """Parses a requirement as `pip freeze`, conda and people write it; None if the text is none.

    `NAME @ file:///…` is the name alone: the path is another machine's. `NAME=1.2=BUILD` is `NAME==1.2`.
    """
    plain = re.sub(r"\s+--(?:hash|config-settings?|global-option)\b.*", "", text.strip())
    plain = re.sub(r"\s*@\s*file:.*", "", plain)
    plain = re.sub(r"^([\w.-]+)=([\w.]+)(?:=[\w.]+)?$", r"\1==\2", plain)
    try:
        return Requirement(plain)
    except InvalidRequirement:
        return None


def applies(requirement: Requirement, *pythons: str) -> bool:
    """Says whether a requirement counts on Linux for one of the Pythons; without any, for one of all."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({**_LINUX, "python_version": python, "python_full_version": f"{python}.9"})
        for python in pythons or _PYTHONS
    )


def parse_specifier(text: str) -> SpecifierSet | None:
    """Parses a limit on versions; None if the text is none."""
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
