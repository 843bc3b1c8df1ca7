"""Reads the parts of pip's requirements files that imgtool needs; uv later reads the whole files.

The texts are those of a requirements file and of the files that it includes with `-r` and `-c`.
The format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from training_imgtool.base.errors import FieldError
from training_imgtool.base.hidden import hide_secrets
from training_imgtool.base.resources import data_file
from training_imgtool.model.source_requirements import SourceRequirement, parse_source

if TYPE_CHECKING:
    from packaging.requirements import Requirement


FIELD = "requirements"
PACKAGES = "python_packages"
INCLUDE = r"(?:-r|--requirement|-c|--constraint)(?:\s+|=|(?=[^-\s]))(?P<file>\S.*)"
_OPTION_ON_REQUIREMENT = r"\s+--(?:hash|config-settings?|global-option)\b.*"
_HUGE_NUMBER = r"\d{101}"  # no version has such a number, and Python refuses to read numbers of thousands of digits
_COMMENT = r"(?:^|\s+)#.*$"
_FILE = r"[\w.+-]+://|(?:git|hg|svn|bzr)\+|\.{0,2}/|[^@]*\.(?:whl|tar\.gz|zip)(?:$|\s)"
_ELSEWHERE = rf"{_FILE}|[\w.-]+\s*(?:\[[^\]]*\])?\s*@"
_EDITABLE = r"(?:-e|--editable)[\s=]"
_LOCAL_WHEEL = r"(?P<path>[^\s:@;\[]+\.whl)(?:\[[^\]]*\])?(?:\s+--hash\S*)*(?:\s*;.*)?$"
_FIND_LINKS = r"(?:-f|--find-links)(?:\s+|=|(?=[^-\s]))[\"']?(?P<place>[^\s\"']+)"
_FREEZE = "write NAME==VERSION; `pip list --format=freeze` prints such lines"
_BOUND = "# index of "
_INDEX_OPTION = r"(?:-i|-f|--index-url|--extra-index-url|--find-links|--no-index)(?:[\s=]|$)|-[if]\S"
PYPROJECT = "pyproject.toml"
SETUP = ("setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True)
class Named:
    """A requirement and its place, such as `requirements.txt:3`."""

    requirement: Requirement
    place: str


def parse_requirements(texts: tuple[tuple[str, str], ...]) -> tuple[Named, ...]:
    """Returns the requirements that name a release; skips URLs, paths and options. A wrong line raises FieldError."""
    from packaging.requirements import InvalidRequirement, Requirement

    requirements = []
    for name, text in texts:
        for number, line in list_lines(text):
            if line.startswith("-") or re.match(_FILE, line) or parse_source(name, "", line):
                continue
            if name.endswith((".yml", ".yaml")):
                raise FieldError(
                    f"{name} is not a requirements file of pip",
                    field=FIELD,
                    hint=f"imgtool init reads it; or {_FREEZE}",
                )
            if re.search(_HUGE_NUMBER, line):
                raise FieldError(f"{_place(name, number)} contains a number of more than 100 digits", field=FIELD)
            try:
                requirement = Requirement(re.sub(_OPTION_ON_REQUIREMENT, "", line))
            except InvalidRequirement as error:
                cures = _read_troubles()["no_requirements"]
                shown = hide_secrets(line)[:60]
                raise FieldError(
                    f"{_place(name, number)}: {shown!r} is not a requirement: {str(error).splitlines()[0]}",
                    field=FIELD,
                    hint=next((cure for pattern, cure in cures if re.match(pattern, line)), None),
                ) from None
            requirements.append(Named(requirement, _place(name, number)))
    return tuple(requirements)


def find_unlockable_lines(texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    """Returns (place, reason, cure) for each line that a lock cannot contain. A place is like `requirements.txt:3`.

    The result does not contain the line itself, which may be secret.
    """
    lines = []
    for name, text in texts:
        for number, line in list_lines(text):
            if trouble := _trouble(name, line):
                lines.append((_place(name, number), *trouble))
    return tuple(lines)


def _trouble(name: str, line: str) -> tuple[str, str] | None:
    """Returns why a lock cannot contain a line, and what to do; None if it can contain the line."""
    is_option = line.startswith("-") and not re.match(_EDITABLE, line)
    is_elsewhere = re.match(_ELSEWHERE, line) or re.match(_EDITABLE, line)
    is_release = is_option or not is_elsewhere or _local_wheel(name, line) or parse_source(name, "", line)
    kinds = ("options",) if is_option else ("requirements",) if is_release else ("requirements", "elsewhere")
    for pattern, reason, cure in (row for kind in ("everywhere", *kinds) for row in _read_troubles()[kind]):
        if re.search(pattern, line):
            return reason, cure
    return None


@cache
def _read_troubles() -> dict[str, list[Any]]:
    return tomllib.loads(data_file("requirements.toml").read_text(encoding="utf-8"))


def resolver_lines(folder: Path, texts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the requirements and the constraints in all files, with absolute paths, for the resolver."""
    constraint_files = _constraint_files(texts)
    lines: list[str] = []
    constraints: list[str] = []
    for name, text in texts:
        for _, line in list_lines(text):
            include = re.match(INCLUDE, line)
            if include and "://" not in include["file"]:
                continue  # the included file's lines are among the texts, too
            if parse_source(name, "", line):
                continue  # `list_code` returns this line
            (constraints if name in constraint_files else lines).append(_absolute(folder, name, line))
    return tuple(lines), tuple(constraints)


def list_code(texts: tuple[tuple[str, str], ...]) -> tuple[SourceRequirement, ...]:
    """Returns the requirements that name code instead of a release: folders, source archives and Git repositories."""
    lines = ((name, number, line) for name, text in texts for number, line in list_lines(text))
    parsed = (parse_source(name, _place(name, number), line) for name, number, line in lines)
    return tuple(requirement for requirement in parsed if requirement)


@dataclass(frozen=True, slots=True)
class Binding:
    """A package that a project takes from one index only, on machines that the marker describes (PEP 508), if any."""

    package: str
    url: str
    marker: str = ""

    def __str__(self) -> str:
        """Formats the binding as a comment of a requirements file, which only imgtool reads."""
        return f"{_BOUND}{self.package} {self.url}{f' ; {self.marker}' if self.marker else ''}"


def read_bindings(lines: Iterable[str]) -> tuple[Binding, ...]:
    """Reads the bindings among the lines of requirements files."""
    rows = (line.removeprefix(_BOUND).partition(" ; ") for line in lines if line.startswith(_BOUND))
    return tuple(Binding(*row.partition(" ")[::2], marker) for row, _, marker in rows)


def without_indexes(texts: tuple[tuple[str, str], ...], *urls: str) -> tuple[tuple[str, str], ...]:
    """Empties the lines (options, bindings) that name an index or a page below one of `urls`."""
    below = "|".join(re.escape(url.rstrip("/")) for url in urls)
    option = rf"(?:-[if]|--(?:extra-)?index-url|--find-links)[\s=]*[\"']?|{_BOUND}\S+ "
    line = re.compile(rf"^[ \t]*(?:{option})(?:{below})(?![^/\s\"'])[^\n]*$", re.MULTILINE)
    return tuple((name, line.sub("", text)) for name, text in texts)


def index_options(folder: Path, texts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Returns the options that say where to find wheels: URLs of indexes, and absolute paths of folders.

    A requirement that names a wheel's file becomes a --find-links with the wheel's folder. Bindings follow as comments.
    """
    options = []
    for name, text in texts:
        for _, line in list_lines(text):
            if re.match(_INDEX_OPTION, line):
                options.append(_absolute(folder, name, line))
            elif wheel := _local_wheel(name, line):
                options.append(f"--find-links {folder.resolve() / posixpath.dirname(wheel)}")
    options += map(str, read_bindings(line for _, text in texts for line in text.splitlines()))
    return tuple(dict.fromkeys(options))


def _absolute(folder: Path, name: str, line: str) -> str:
    links = re.match(_FIND_LINKS, line)
    if links and _is_relative(links["place"]):
        return f"--find-links {folder.resolve() / join_path(name, links['place'])}"
    wheel = _local_wheel(name, line)
    if wheel is None:
        return line
    extras, bracket, rest = line.partition(".whl")[2].rpartition("]")
    package = posixpath.basename(wheel).partition("-")[0]
    return f"{package}{extras}{bracket} @ {(folder.resolve() / wheel).as_uri()}{rest}"


def _local_wheel(name: str, line: str) -> str | None:
    """Returns the path of the wheel that a line names, relative to the spec's folder; None if there is none."""
    match = re.match(_LOCAL_WHEEL, line)
    path = join_path(name, match["path"]) if match else ".."
    return None if path.startswith(("..", "/")) else path


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith(("/", "~", "$", "file:"))


def normalise_name(name: str) -> str:
    """Returns a package's name in normalised form, because indexes compare names in this form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_hashes(texts: tuple[tuple[str, str], ...]) -> dict[str, frozenset[str]]:
    """Returns, for each package, by its normalised name, the sha256 values of its `--hash` options."""
    allowed: dict[str, frozenset[str]] = {}
    for _, text in texts:
        for _, line in list_lines(text):
            hashes = frozenset(re.findall(r"--hash[= ]sha256:([0-9a-f]{64})", line))
            match = re.match(r"[A-Za-z0-9._-]+", line)
            if hashes and match and not line.startswith("-"):
                name = normalise_name(match[0])
                allowed[name] = allowed.get(name, frozenset()) | hashes
    return allowed


def _constraint_files(texts: tuple[tuple[str, str], ...]) -> frozenset[str]:
    options = ((name, line) for name, text in texts for _, line in list_lines(text) if line.startswith(("-c", "--con")))
    matches = ((name, re.match(INCLUDE, line)) for name, line in options)
    return frozenset(join_path(name, match["file"].strip("'\"")) for name, match in matches if match)


def list_lines(text: str) -> list[tuple[int, str]]:
    """Returns lines with their numbers. Joins continued lines; removes comments and empty lines."""
    lines: list[tuple[int, str]] = []
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if held else number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            held += raw[:-1]
            continue
        line, held = held + raw, ""
        if "#" in line:
            line = re.sub(_COMMENT, "", line)
        line = line.strip()
        if line:
            lines.append((start, line))
    if held.strip():
        lines.append((start, held.strip()))
    return lines


def _place(name: str, number: int) -> str:
    """Returns a line's place for a message; without a number if imgtool converted the text from another format."""
    if name == PACKAGES:
        return f"{PACKAGES}[{number - 1}]"
    return name if name.endswith((".toml", ".py", ".cfg")) else f"{name}:{number}"


def join_path(current: str, file: str) -> str:
    """Returns the path of `file`, a path that is relative to the folder of the file `current`."""
    return posixpath.normpath(PurePosixPath(current).parent / file)
