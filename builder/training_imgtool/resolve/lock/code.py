"""Builds wheels for requirements that name code: folders, source archives and Git commits.

imgtool builds these wheels as it builds wheels from an index's source archives. The lock contains the wheel's hash and,
for a Git repository, the commit. If the folder is the project that contains the trainer, the lock contains only the
project's requirements: the image already contains the project's code, and a changed line of code must not change the
lock.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_imgtool.base.errors import FieldError, ImgtoolError, InputError
from training_imgtool.model.entry_point import PROJECT_FILES
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import Source, Wheel
from training_imgtool.model.own_projects import is_own_project
from training_imgtool.model.requirements import FIELD, normalise_name
from training_imgtool.model.source_requirements import SourceRequirement, is_archive, parse_git
from training_imgtool.resolve.lock.archives import ArchiveBuilder
from training_imgtool.resolve.wheels.sources.build import SourceBuildError
from training_imgtool.resolve.wheels.sources.folder import CodeFolder
from training_imgtool.resolve.wheels.sources.git import Git
from training_imgtool.resolve.wheels.store import WheelStore

_METADATA_FILES = (*PROJECT_FILES, "requirements*.txt", "requirements*.in")
_LIST = re.compile(r"[\w-][\w./-]*\.(?:txt|in)\b")  # builds mostly read computed requirements from such a file
_LARGEST_METADATA = 1 << 20  # bytes of a file on which a project's metadata may depend
_NO_VERSION = "0"  # the version of a wheel that goes into no image, since a project's version may come from Git tags
_CURE = (
    "imgtool builds it with its [build-system] requirements and without a compiler; if that is not enough, run "
    "`pip wheel --no-deps -w wheels {}` once and require ./wheels/NAME.whl"
)


@dataclass(frozen=True, slots=True)
class CodeWheels:
    """The result for code requirements: lines for the resolver, and packages that images leave out."""

    lines: tuple[str, ...]
    left_out: frozenset[str]


class CodeBuilder:
    """Builds the wheels of one lock's code requirements. Safe for several threads.

    Args:
        spec_file: the spec; relative paths start from its folder.
        requirements: the requirements that name code.
        archives: builds the wheels, and stores those of this lock.
        store: has the wheels' files.
        git: reads repositories.
        commits: the commits of the previous lock by origin, which the new lock keeps.
    """

    def __init__(
        self,
        spec_file: SpecFile,
        requirements: tuple[SourceRequirement, ...],
        *,
        archives: ArchiveBuilder,
        store: WheelStore,
        git: Git,
        commits: Mapping[str, str],
    ) -> None:
        self._spec_file, self._requirements = spec_file, requirements
        self._archives, self._store, self._git = archives, store, git
        self._commits = dict(commits)

    def build(self, python: str) -> CodeWheels:
        """Builds every wheel for one Python version; raises FieldError with the place of a requirement that fails."""
        lines, left_out = [], set()
        for requirement in self._requirements:
            try:
                wheel = self._wheel(requirement, python)
            except ImgtoolError as error:
                raise _add_place(requirement, error) from error
            if requirement.name and normalise_name(requirement.name) != normalise_name(wheel.name):
                message = f"{requirement.place}: {requirement.origin} is {wheel.name}, not {requirement.name}"
                raise FieldError(message, field=FIELD, hint=f"write {wheel.name}")
            extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            lines.append(f"{wheel.name}{extras} @ {self._store.require(wheel).as_uri()}{marker}")
            if is_own_project(requirement, self._spec_file):
                left_out.add(normalise_name(wheel.name))
        return CodeWheels(tuple(lines), frozenset(left_out))

    def _wheel(self, requirement: SourceRequirement, python: str) -> Wheel:
        if requirement.is_git:
            return self._git_wheel(requirement.origin, python)
        _require_reachable(requirement.path, self._spec_file.folder)
        place, source = self._spec_file.folder / requirement.path, Source(origin=requirement.origin)
        if is_archive(requirement.path):
            return self._archives.build_code(place, source, _hash_file(place), python, "")
        code = CodeFolder(self._spec_file.folder, requirement.path, self._spec_file.path.name)
        is_own = is_own_project(requirement, self._spec_file)
        with tempfile.TemporaryDirectory(prefix="imgtool-code-") as work:
            code.copy(Path(work), largest_file=_LARGEST_METADATA if is_own else None)
            digest = _hash_metadata(place) if is_own else code.hash()
            return self._archives.build_code(Path(work), source, digest, python, _NO_VERSION if is_own else "")

    def _git_wheel(self, origin: str, python: str) -> Wheel:
        place, commit = parse_git(origin), self._commit(origin)
        with tempfile.TemporaryDirectory(prefix="imgtool-code-") as work:
            self._git.check_out(place.url, commit, Path(work, "code"))
            folder = Path(work, "code", place.subdirectory)
            if not folder.is_dir():
                raise InputError(f"the repository has no folder {place.subdirectory} at commit {commit[:12]}")
            return self._archives.build_code(folder, Source(origin=origin, commit=commit), commit, python, "")

    def _commit(self, origin: str) -> str:
        if origin not in self._commits:
            place = parse_git(origin)
            self._commits[origin] = self._git.resolve(place.url, place.revision)
        return self._commits[origin]


def _add_place(requirement: SourceRequirement, error: ImgtoolError) -> ImgtoolError:
    """Adds the place of the requirement's line to an error; a network error keeps its exit code."""
    message = f"{requirement.place}: {requirement.origin}: {error.message}"
    hint = error.hint
    if isinstance(error, SourceBuildError) and hint is None:
        hint = _CURE.format(requirement.origin)
    placed = type(error)(message, hint=hint, details=error.details) if error.exit_code != FieldError.exit_code else None
    if placed is not None:
        return placed
    located = FieldError(message, field=FIELD, hint=hint)
    located.details = error.details
    return located


def hash_code(spec_file: SpecFile, requirements: Iterable[SourceRequirement]) -> tuple[tuple[str, str], ...]:
    """Returns the origin and the sha256 of each folder and archive on this machine that a lock depends on.

    Raises FieldError for code that cannot be read.
    """
    hashes = []
    for requirement in requirements:
        if requirement.is_git:
            continue  # a Git requirement is in the requirements files, and its commit in the lock
        path = spec_file.folder / requirement.path
        try:
            _require_reachable(requirement.path, spec_file.folder)
            if is_own_project(requirement, spec_file):
                digest = _hash_metadata(path)
            elif is_archive(requirement.path):
                digest = _hash_file(path)
            else:
                digest = CodeFolder(spec_file.folder, requirement.path, spec_file.path.name).hash()
        except ImgtoolError as error:
            raise _add_place(requirement, error) from error
        except OSError as error:
            message = f"{requirement.place}: {requirement.origin}: {error.strerror}"
            raise FieldError(message, field=FIELD) from error
        hashes.append((requirement.origin, digest))
    return tuple(hashes)


def _hash_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_metadata(folder: Path) -> str:
    """Hashes the files that state a project's requirements, and the requirement lists that these files name."""
    digest = hashlib.sha256()
    files = {path for pattern in _METADATA_FILES for path in folder.glob(pattern)}
    texts = [path.read_text(errors="replace") for path in files if path.name in PROJECT_FILES]
    named = (folder / name for text in texts for name in _LIST.findall(text))
    for path in sorted(files | {path for path in named if path.is_file()}):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _require_reachable(path: str, folder: Path) -> None:
    """Raises FieldError for a path outside the spec's repository."""
    top = next((parent for parent in (folder.resolve(), *folder.resolve().parents) if (parent / ".git").exists()), None)
    if not (folder / path).resolve().is_relative_to(top or folder.resolve()):
        raise FieldError(
            "is outside the repository that contains the spec",
            field=FIELD,
            hint="the lock depends on this code: move it into the repository, or publish it as a repository or a wheel",
        )
