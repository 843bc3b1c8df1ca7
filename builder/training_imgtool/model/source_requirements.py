"""Parses requirements that name code instead of a release: a folder, a source archive or a Git repository.

The lines have the forms of pip and uv: `./libs/x[extra]`, `-e ./libs/x`, `name @ ./libs/x`, `name @ file:./libs/x`,
`./x-1.0.tar.gz`, `git+https://HOST/PATH@REVISION#subdirectory=libs/x` and `name @ git+https://…`.
https://pip.pypa.io/en/stable/topics/vcs-support/ describes the Git form.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import parse_qs, unquote

_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)")
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[(?P<extras>[^\]]*)\])?\s*@\s*(?P<place>\S.*)")
_MARKER = re.compile(r"\s*;\s*(?P<marker>.+)$")
_EXTRAS = re.compile(r"\[(?P<extras>[\w\s.,-]*)\]$")
_GIT = re.compile(r"git\+(?P<url>(?:https?|ssh|file)://[^\s#/]*/[^\s#@]+)(?:@(?P<revision>[^\s#@-][^\s#@]*))?")
_ARCHIVE = (".tar.gz", ".zip")
_MOST_LETTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequirement:
    """One requirement that names code instead of a release.

    Attributes:
        place: the line's place, such as `requirements.txt:3`.
        name: the package that the line names, or None.
        extras: the extras that the line names.
        marker: the environment marker, or an empty text.
        origin: the code's place in the lock: `git+URL@REVISION#subdirectory=PATH`, or a path relative to the spec.
    """

    place: str
    name: str | None
    extras: tuple[str, ...]
    marker: str
    origin: str

    @property
    def is_git(self) -> bool:
        """Whether the code is in a Git repository instead of a folder or archive on this machine."""
        return self.origin.startswith("git+")

    @property
    def path(self) -> str:
        """The folder or archive, relative to the spec's folder."""
        return self.origin


@dataclass(frozen=True, slots=True)
class GitPlace:
    """The address of a Git requirement. `revision` is a branch, tag or commit, or empty for the default branch."""

    url: str
    revision: str
    subdirectory: str


def parse_git(origin: str) -> GitPlace:
    """Splits an origin that starts with `git+` into its parts; raises ValueError for any other text."""
    address, _, fragment = origin.partition("#")
    match = _GIT.fullmatch(address)
    if match is None:
        raise ValueError(origin)
    subdirectory = parse_qs(fragment).get("subdirectory", [""])[0].strip("/")
    if ".." in subdirectory.split("/"):
        raise ValueError(origin)
    return GitPlace(match["url"], match["revision"] or "", subdirectory)


def parse_source(name: str, place: str, line: str) -> SourceRequirement | None:
    """Parses a line of the requirements file `name`; None if it names a release, or code that a lock cannot contain.

    Args:
        name: the file, relative to the spec's folder; relative paths in it start from its own folder.
        place: the line's place.
        line: the text, without a comment.
    """
    rest = _EDITABLE.sub("", line, count=1)
    if (rest == line and line.startswith("-")) or len(line) > _MOST_LETTERS * 10:
        return None
    named = _NAMED.fullmatch(rest)
    text = named["place"] if named else rest
    marker = _MARKER.search(text)
    text = text[: marker.start()] if marker else text
    extras = _split(named["extras"]) if named else ()
    if text.startswith("git+"):
        origin = _git_origin(text)
        egg = parse_qs(text.partition("#")[2]).get("egg", [""])[0]
        package = named["name"] if named else egg.partition("[")[0] or None
        extras = extras or _split(egg.partition("[")[2].rstrip("]"))
    else:
        bracket = _EXTRAS.search(text)
        extras = extras or (_split(bracket["extras"]) if bracket else ())
        origin = _path(name, text[: bracket.start()] if bracket else text, is_named=bool(named))
        package = named["name"] if named else None
    if origin is None:
        return None
    return SourceRequirement(
        place=place, name=package, extras=extras, marker=marker["marker"] if marker else "", origin=origin
    )


def _git_origin(place: str) -> str | None:
    try:
        git = parse_git(place)
    except ValueError:
        return None
    revision = f"@{git.revision}" if git.revision else ""
    return f"git+{git.url}{revision}" + (f"#subdirectory={git.subdirectory}" if git.subdirectory else "")


def _path(name: str, place: str, *, is_named: bool) -> str | None:
    """Returns the path that a line names, relative to the spec's folder; None for a release, a wheel or a URL."""
    if place.startswith("file:"):
        place = unquote(place.removeprefix("file:"))
        is_named = True
    if place.startswith(("/", "~", "$")) or "://" in place or place.endswith(".whl") or re.search(r"\s", place):
        return None
    is_path = is_named or place.startswith(".") or "/" in place or place.endswith(_ARCHIVE)
    return posixpath.normpath(PurePosixPath(name).parent / place) if is_path else None


def _split(extras: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (extra.strip() for extra in (extras or "").split(","))))


def is_archive(path: str) -> bool:
    """Returns whether a path names a source archive instead of a folder."""
    return path.endswith(_ARCHIVE)
