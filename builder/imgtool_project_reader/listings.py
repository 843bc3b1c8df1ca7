"""Chooses the listing of a program: the file, among all that list packages, that lists what the program needs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from imgtool_project_reader.frameworks import PACKAGES
from imgtool_project_reader.read import Project
from imgtool_project_reader.statement import Fact, Statement

_OF_PROJECT = ("pyproject.toml", "setup.cfg", "setup.py")
_VARIANT = re.compile(
    r"(?i)(?:^|[._-])(?:cpu|gpu|cuda\w*|mac(?:os)?|apple|metal|windows|win|jupyter|notebooks?|colab|tpu|rocm|arm\w*|build|optional"
    r"|all|full|api|tflite|eval\w*|transcribe|serving|ui|web|demo|text|extras?|no_cuda|tf1|pytorch|torch|minimal?|colabs?)(?=[._-]|$)"
)
_DEVELOPMENT = re.compile(
    r"(?i)(?:^|[._/-])(?:dev\w*|tests?|testing|docs?|lint\w*|ci|style|travis|rtd|mkdocs|pre-commit)(?=[._/-]|$)"
)
_KINDS = (  # patterns of file names, and how likely such a file is the right one
    (re.compile(r".*\.(?:txt|in|pip)"), 2.0),
    (re.compile(r"pyproject\.toml"), 1.9),
    (re.compile(r"Pipfile"), 1.8),
    (re.compile(r"setup\.(?:py|cfg)"), 1.5),
    (re.compile(r".*\.ya?ml"), 1.4),
    (re.compile(r"(?i).*dockerfile.*|containerfile"), 0.6),
    (re.compile(r"pylock.*\.toml"), 1.0),
    (re.compile(r".*\.ipynb"), 0.2),
    (re.compile(r".*\.py"), 9.0),  # a program's own metadata
    (re.compile(r".*"), 0.4),
)
_USED_EXTRA = re.compile(r"extra (?:train\w*|ml|models?)")
_TENSORFLOW_EXTRA = re.compile(r"extra (?:tf2?|tensorflow2?(?:-cpu)?|keras[23]?|cpu)")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The packages that one file and its included files list.

    Attributes:
        file: the path relative to the project.
        packages: the requirements that every installation needs, and those of `extras`.
        extras: the chosen extras.
        statements: all statements of these files.
        named_by: the place of the command that installs the file.
    """

    file: str
    packages: tuple[Statement, ...]
    extras: tuple[str, ...]
    statements: tuple[Statement, ...]
    score: float
    named_by: str | None = None


def rank_listings(project: Project, folder: str, program: str = "") -> tuple[Listing, ...]:
    """Returns the listings, first the best for `program` in `folder`; leaves out listings in other programs."""
    everything = [item for rows in project.statements.values() for item in rows]
    installs = [item for item in everything if item.fact is Fact.INSTALL]
    own = {canonicalize_name(item.value) for item in everything if item.fact is Fact.NAME}
    listings = []
    for file in project.statements:
        rows = tuple(_include(project, file, set()))
        extras = _choose_extras(rows, file, installs, folder)
        packages = tuple(
            item
            for item in rows
            if item.fact is Fact.PACKAGE and (not item.group or item.group in extras) and item.package not in own
        )
        is_others = file.endswith(".py") and PurePosixPath(file).name != "setup.py" and file != program
        if packages and not is_others:
            score, named_by = _score(file, folder, installs, packages)
            names = tuple(extra.partition(" ")[2] for extra in extras)
            listings.append(
                Listing(file=file, packages=packages, extras=names, statements=rows, score=score, named_by=named_by)
            )
    return tuple(sorted(listings, key=lambda listing: (-listing.score, listing.file.count("/"), listing.file)))


def _include(project: Project, file: str, seen: set[str]) -> Iterator[Statement]:
    """Yields the statements of a file and of all files that it includes."""
    seen.add(file)
    for item in project.statements.get(file, ()):
        yield item
        if item.fact is Fact.INCLUDE:
            other = posixpath.normpath(posixpath.join(posixpath.dirname(file), item.value))
            is_development = _DEVELOPMENT.search(other) and not _DEVELOPMENT.search(file)
            if other not in seen and not (is_development and PurePosixPath(file).name in _OF_PROJECT):
                is_variant = _VARIANT.search(other) and PurePosixPath(file).name in _OF_PROJECT
                group = item.group or ("extra gpu" if is_variant else "")
                yield from (replace(row, group=row.group or group) for row in _include(project, other, seen))


def _choose_extras(rows: tuple[Statement, ...], file: str, installs: list[Statement], program: str) -> tuple[str, ...]:
    """Chooses the extras that training needs: those in the README's commands, and those for training or TensorFlow.

    An extra that has the name of a folder is for the programs in that folder.
    """
    groups = dict.fromkeys(item.group for item in rows if item.fact is Fact.PACKAGE and item.group)
    folder = posixpath.dirname(file) or "."
    named = {
        f"extra {extra.strip()}"
        for item in installs
        if PurePosixPath(file).name in _OF_PROJECT and _installed_folder(item) == folder and "[" in item.value
        for extra in item.value.partition("[")[2].rstrip("]").split(",")
    }
    wanted = [group for group in groups if group in named and not _VARIANT.search(f".{group[6:]}")]
    beside = posixpath.relpath(program, folder).partition("/")[0]
    wanted += [group for group in groups if _USED_EXTRA.fullmatch(group) or group == f"extra {beside}"]
    has = {item.package for item in rows if item.fact is Fact.PACKAGE and (not item.group or item.group in wanted)}
    if not has & PACKAGES:
        brings = {item.group for item in rows if item.fact is Fact.PACKAGE and item.package in PACKAGES}
        usual = [group for group in groups if _TENSORFLOW_EXTRA.fullmatch(group)]
        plain = [group for group in groups if group in brings and not _VARIANT.search(f".{group[6:]}")]
        wanted += (usual or plain or [group for group in groups if group in brings])[:1]
    return tuple(dict.fromkeys(wanted))


def _installed_folder(item: Statement) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(item.file), item.value.partition("[")[0]))


def _score(
    file: str, folder: str, installs: list[Statement], packages: tuple[Statement, ...]
) -> tuple[float, str | None]:
    name, place = PurePosixPath(file).name, posixpath.dirname(file) or "."
    score = next(value for pattern, value in _KINDS if pattern.fullmatch(name))
    named = [item for item in installs if _installs(item, file)]
    if named and name not in _OF_PROJECT:
        score += 6 if any("/" not in item.file for item in named) else 3
    elif named:
        score += 3
    above = [folder, *map(str, PurePosixPath(folder).parents)]
    score += 3 + 1 / (1 + above.index(place)) ** 2 if place in above else -1 if named else -6
    if not named or _DEVELOPMENT.search(name):
        score -= 10 if _DEVELOPMENT.search(file) else 0
    score -= 4 if _VARIANT.search(name) else 0
    score += 1.5 if any(item.package in PACKAGES for item in packages) else 0
    score += 0.5 if any(item.file != file for item in packages) else 0  # the file includes another one
    return score, named[0].place if named else None


def _installs(item: Statement, file: str) -> bool:
    """Tells whether a command installs the packages in the listing `file`."""
    base = posixpath.dirname(item.file)
    value = item.value.partition("[")[0].lstrip("/")
    paths = {posixpath.normpath(posixpath.join(base, value)), posixpath.normpath(value)}
    if PurePosixPath(file).name in _OF_PROJECT and (posixpath.dirname(file) or ".") in paths:
        return True
    return file in paths or (PurePosixPath(file).name == PurePosixPath(value).name and value.endswith((".txt", ".yml")))
