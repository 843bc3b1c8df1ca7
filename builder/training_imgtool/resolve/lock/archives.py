"""Resolves with source archives: builds pure-Python archives, and names packages that are older for lack of a wheel.

uv reports which archive it needs next; imgtool builds that archive and runs uv again. Otherwise uv would choose the
newest release for which an index has wheels of the package and of all its requirements. Such a release may be years
old.
"""

from __future__ import annotations

import hashlib
import platform
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import InvalidSdistFilename, parse_sdist_filename
from packaging.version import Version

from training_imgtool.base.errors import InputError
from training_imgtool.base.progress import Done, Outcome, Progress, Step
from training_imgtool.model.lock import Source, Wheel
from training_imgtool.model.requirements import normalise_name
from training_imgtool.resolve.wheels.index.page import IndexedFile
from training_imgtool.resolve.wheels.interpreters import find_interpreter
from training_imgtool.resolve.wheels.sources.build import SourceBuildError, build_wheel
from training_imgtool.resolve.wheels.store import WheelStore
from training_imgtool.resolve.wheels.uv import ArchiveNeededError, ResolvedWheel, Target

_MOST_ARCHIVES = 60  # for one resolution; each archive means a run of uv and a build
_LARGEST = 1 << 30  # bytes
_REFUSED_BY_SPEC = SourceBuildError("the spec says `sdists: refuse`")


@dataclass(frozen=True, slots=True)
class BuiltWheel:
    """A wheel, and the source of its build: the hash of an archive or a folder, or a Git commit."""

    wheel: Wheel
    sha256: str


Built = dict[tuple[str, str, str], BuiltWheel | SourceBuildError]  # by name, version (or hash of code) and Python


@dataclass(frozen=True, slots=True)
class Refused:
    """An archive from which imgtool cannot build a wheel, and the reason."""

    version: str
    reason: str
    wanted_by: tuple[str, str] | None


class ArchiveBuilder:
    """Builds the wheels that one lock needs and no index has. Safe for several threads.

    Args:
        store: keeps archives and wheels.
        environ: the machine's environment for uv.
        progress: receives each build.
        built: wheels that an earlier, similar lock of this run built; the builder adds the wheels that it builds.
        pure: releases (`gast==0.2.2`) that this program's Python may build if the machine lacks the image's Python.
    """

    def __init__(
        self,
        store: WheelStore,
        *,
        environ: Mapping[str, str],
        progress: Progress,
        built: Built | None = None,
        pure: frozenset[str] = frozenset(),
    ) -> None:
        self._store, self._environ, self._progress, self._pure = store, environ, progress, pure
        self._lock = threading.Lock()
        self._results: Built = {} if built is None else built

    def folders(self) -> tuple[Path, ...]:
        """Lists the folders of the wheels built so far, for uv's --find-links."""
        return tuple(sorted({path.parent for built in self._built() if (path := self._store.path(built.wheel))}))

    def _built(self) -> tuple[BuiltWheel, ...]:
        return tuple(built for built in tuple(self._results.values()) if isinstance(built, BuiltWheel))

    def allow_built(self, hashes: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        """Adds to each package's allowed `hashes` the hashes of the wheels that were built from an allowed archive."""
        allowed = dict(hashes)
        for built in self._built():
            name = normalise_name(built.wheel.name)
            if built.sha256 in hashes.get(name, ()):
                allowed[name] |= {built.wheel.sha256}
        return allowed

    def add_sources(self, wheels: tuple[Wheel, ...]) -> tuple[Wheel, ...]:
        """Returns the wheels; sets `source` in each wheel that imgtool built from an archive or code."""
        built = {built.wheel.sha256: built.wheel for built in self._built()}
        return tuple(
            replace(wheel, source=built[wheel.sha256].source) if wheel.sha256 in built else wheel for wheel in wheels
        )

    def resolve(
        self, compile_with: Callable[[frozenset[str]], tuple[ResolvedWheel, ...]], target: Target, *, build: bool
    ) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...]]:
        """Resolves requirements, and names the packages that are older because imgtool cannot build an archive.

        Args:
            compile_with: resolves without the archives of the given packages.
            target: the image.
            build: whether archives may be built.

        Raises what `compile_requirements` raises.
        """
        refused: dict[str, Refused] = {}
        for _ in range(_MOST_ARCHIVES):
            try:
                return _name_refused(refused, lambda: compile_with(frozenset(refused)))
            except ArchiveNeededError as error:
                result = self._result(error.name, error.version, target) if build else _REFUSED_BY_SPEC
                if isinstance(result, SourceBuildError):
                    refused[error.name] = Refused(error.version, result.message, error.wanted_by)
        raise InputError(
            f"the requirements need more than {_MOST_ARCHIVES} source archives",
            hint="pin newer versions, or put wheels of the packages into a folder that UV_FIND_LINKS names",
        )

    def _result(self, name: str, version: str, target: Target) -> Wheel | SourceBuildError:
        key = (normalise_name(name), version, target.python)
        with self._lock:
            if key not in self._results:
                try:
                    self._results[key] = self._build(name, version, target.python)
                except SourceBuildError as error:
                    self._results[key] = error
            elif isinstance(self._results[key], BuiltWheel):
                return SourceBuildError("uv refuses the wheel that imgtool built from its archive")
            result = self._results[key]
            return result if isinstance(result, SourceBuildError) else result.wheel

    def build_code(self, folder: Path, source: Source, sha256: str, python: str, version: str) -> Wheel:
        """Builds a wheel from code, once for each version of Python; raises SourceBuildError.

        Args:
            folder: the code, which the build may write into; or an archive.
            source: the code's entry in the lock.
            sha256: the hash of the code, or its commit.
            python: the version of Python that builds.
            version: the version in a Git tag, for builds that read it there; empty if there is no tag.
        """
        key = (source.origin, sha256, python)
        label = source.origin.partition("#")[0].rpartition("/")[2]
        subject = f"wheel {'of the project' if label in {'.', '..'} else label}"
        with self._lock:
            built = self._results.get(key)
            if not isinstance(built, BuiltWheel):
                self._progress(Step(subject, "building"))
                wheel = self._build_wheel(subject, folder, python, version)
                built = self._results[key] = BuiltWheel(replace(wheel, source=source), sha256)
            return built.wheel

    def _build(self, name: str, version: str, python: str) -> BuiltWheel:
        archive = self._archive(name, version)
        self._progress(Step(f"wheel {name}", f"building {archive.file}"))
        self._store.fetch((archive,), self._progress)
        if f"{normalise_name(name)}=={version}" in self._pure and find_interpreter(python, self._environ) is None:
            python = ".".join(platform.python_version_tuple()[:2])
        wheel = self._build_wheel(f"wheel {name}", self._store.require(archive), python)
        same_version = Version(wheel.version.replace("_", "-")) == Version(version)
        if normalise_name(wheel.name) != normalise_name(name) or not same_version:
            raise SourceBuildError(f"its build makes {wheel.file}")
        return BuiltWheel(replace(wheel, source=Source(origin=archive.file)), archive.sha256)

    def _build_wheel(self, subject: str, code: Path, python: str, tagged: str = "") -> Wheel:
        with tempfile.TemporaryDirectory(prefix="imgtool-wheel-") as temporary:
            indexes = self._store.index.places()
            try:
                built = build_wheel(
                    code, python, Path(temporary), indexes=indexes, environ=self._environ, version=tagged
                )
            except SourceBuildError as error:  # resolving continues, because the lock may not need it
                self._progress(Done(subject, Outcome.FAILED, error.message))
                raise
            with built.open("rb") as stream:
                wheel = self._store.put(built.name, stream)
        self._progress(Done(subject, Outcome.BUILT, wheel.file))
        return wheel

    def _archive(self, name: str, version: str) -> Wheel:
        rows = [row for row in self._store.index.files(name) if _is_archive(row, version)]
        if not rows:
            raise SourceBuildError("no index has a source archive of it as .tar.gz or .zip")
        row = min(rows, key=lambda row: not row.file.endswith(".tar.gz"))
        digest, size = row.sha256, row.size
        if digest is None or size is None:
            hashed, size = hashlib.sha256(), 0
            for block in self._store.index.read(row.url, limit=_LARGEST):
                hashed.update(block)
                size += len(block)
            digest = hashed.hexdigest()
        self._store.remember(digest, row.url)
        return Wheel(name=normalise_name(name), version=version, file=row.file, sha256=digest, size=size)


def _is_archive(row: IndexedFile, version: str) -> bool:
    try:
        return parse_sdist_filename(row.file)[1] == Version(version)
    except InvalidSdistFilename:
        return False


def _name_refused(
    refused: Mapping[str, Refused], resolve: Callable[[], tuple[ResolvedWheel, ...]]
) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...]]:
    """Resolves without the refused archives; also returns a sentence for each package that is older without them."""
    try:
        resolved = resolve()
    except ArchiveNeededError:
        raise
    except InputError as error:
        if refused:
            whys = "; ".join(f"{name} {row.version}: {row.reason}" for name, row in refused.items())
            error.message = f"{error.message} ({whys})"
            error.args = (error.message,)
        raise
    versions = {normalise_name(row.name): row.version for row in resolved}
    notes = []
    for name, row in refused.items():
        top, wanted = row.wanted_by or (name, row.version)
        actual = versions.get(normalise_name(top))
        if actual is not None and actual != wanted:
            notes.append(f"{top} {actual} instead of {wanted}: {name} {row.version} has no wheel, and {row.reason}")
    return resolved, tuple(dict.fromkeys(notes))
