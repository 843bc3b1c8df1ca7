"""Makes a lock: resolves the spec, reads the bases' digests, and lets uv choose the wheels."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from training_imgtool.base.errors import FieldError, FieldListError, InputError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.progress import Done, Note, Outcome, Progress, Step
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import run_all
from training_imgtool.model.frameworks import Framework
from training_imgtool.model.load import SpecFile
from training_imgtool.model.lock import Lock, LockedDebian, LockedVariant, Variant, Wheel
from training_imgtool.model.own_projects import own_names
from training_imgtool.model.requirement_files import read_locked, read_texts
from training_imgtool.model.requirements import (
    FIELD,
    PACKAGES,
    Named,
    index_options,
    list_code,
    normalise_name,
    parse_requirements,
    read_bindings,
    read_hashes,
    resolver_lines,
    without_indexes,
)
from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.frameworks import rules_of
from training_imgtool.resolve.lock.archives import ArchiveBuilder, Built
from training_imgtool.resolve.lock.builds import BuildWheels, find_compiled
from training_imgtool.resolve.lock.carry_over import NOTHING_CARRIED_OVER, CarriedOver
from training_imgtool.resolve.lock.code import CodeBuilder, hash_code
from training_imgtool.resolve.lock.lockfile import inputs_hash
from training_imgtool.resolve.lock.trim import RULES, WheelReader
from training_imgtool.resolve.versions.closure import Package
from training_imgtool.resolve.versions.matrix import Matrix
from training_imgtool.resolve.versions.resolve import resolve
from training_imgtool.resolve.versions.rules import Finding, raise_errors
from training_imgtool.resolve.versions.rules_requirements import check_lines, check_requirements
from training_imgtool.resolve.wheels.index.page import IndexedFile
from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ
from training_imgtool.resolve.wheels.libraries import WheelLibraries, known_wheels
from training_imgtool.resolve.wheels.metadata import WheelMetadata
from training_imgtool.resolve.wheels.pairs import find_pairs
from training_imgtool.resolve.wheels.sources.git import Git
from training_imgtool.resolve.wheels.store import WheelStore, describe_yank
from training_imgtool.resolve.wheels.uv import (
    ResolvedWheel,
    Target,
    UnknownPackageError,
    UnreadableMetadataError,
    compile_requirements,
)

_JOBS = 16
_MOST_ROUNDS = 10
_UNKNOWN_GLIBC = "2.28"  # for a base of unknown content; most wheels are built for it (manylinux_2_28)


LockDebian = Callable[[Variant, str], LockedDebian | None]


def _no_packages(variant: Variant, base_digest: str) -> None:
    del variant, base_digest


def make_lock(
    spec_file: SpecFile,
    matrix: Matrix,
    base_digest: Callable[[str], str],
    settings: Settings,
    progress: Progress,
    *,
    carried_over: CarriedOver = NOTHING_CARRIED_OVER,
    lock_debian: LockDebian = _no_packages,
    built: Built | None = None,
) -> Lock:
    """Resolves a spec to versions, digests of base images, and wheels.

    Args:
        spec_file: the spec.
        matrix: the versions that fit together.
        base_digest: returns the manifest digest of a base for the spec's platform.
        settings: the machine's settings.
        progress: receives each step and the warnings.
        carried_over: the entries that the new lock keeps from the previous one.
        lock_debian: resolves the Debian packages of a variant on a base with a digest.
        built: wheels that an earlier lock of this run built from source archives; this lock adds those that it builds.

    Raises:
        FieldError, FieldListError: something in the spec or its requirements does not fit; the error names the place.
        InputError: uv finds no set of wheels; `details` has uv's explanation.
        TemporaryError, CredentialsError: the index or the registry does not answer, or refuses.
    """
    spec = spec_file.spec
    try:
        texts = read_texts(spec_file)
        hashes = hash_code(spec_file, list_code(texts))
        maker = _Maker(spec_file, matrix, settings, progress, texts, carried_over=carried_over, built=built)
        resolution = resolve(spec, maker.know_release(), texts)
        findings = check_lines(texts)
        findings += [finding for variant in resolution.variants for finding in maker.check(variant)]
        warnings = (*resolution.warnings, *raise_errors(findings))
    except FieldListError as error:
        raise FieldListError(tuple(spec_file.located(located_error) for located_error in error.errors)) from error
    except FieldError as error:
        raise spec_file.located(error) from error
    for warning in dict.fromkeys(warnings):
        progress(Note(warning))
    try:
        locked = run_all(
            {variant.name: partial(maker.lock, variant, base_digest, lock_debian) for variant in resolution.variants}
        )
    except FieldError as error:
        raise spec_file.located(error) from error
    return Lock(
        inputs=inputs_hash(spec, (*texts, *maker.locked, *hashes), matrix.version),
        platform=spec.platform,
        variants=tuple(locked.values()),
    )


class _Maker:
    """Makes one lock; stores the values that all variants of the lock share."""

    def __init__(
        self,
        spec_file: SpecFile,
        matrix: Matrix,
        settings: Settings,
        progress: Progress,
        texts: tuple[tuple[str, str], ...],
        *,
        carried_over: CarriedOver,
        built: Built | None,
    ) -> None:
        self._spec, self._folder = spec_file.spec, spec_file.folder
        self._matrix, self._progress = matrix, progress
        if own := spec_file.spec.framework.build_index:
            texts, given = without_indexes(texts, own, settings.build_indexes), texts
            if texts != given:
                progress(
                    Note("imgtool itself finds the index of each role's build; it ignores the one in the requirements")
                )
        self._texts = texts
        self._carried_over = carried_over
        self.locked = read_locked(spec_file)  # locked by the project's other tool
        self._named: tuple[Named, ...] = parse_requirements(texts)
        self._environ = make_uv_environ(settings.environ, ca_file=settings.ca_file)
        self._store = WheelStore(settings, options=lambda: index_options(spec_file.folder, texts))
        self._sizes = Sizes(self._store, settings.cache / "wheel-sizes.json")
        self._archives = ArchiveBuilder(
            self._store, environ=self._environ, progress=progress, built=built, pure=matrix.pure_archives
        )
        self._code = CodeBuilder(
            spec_file,
            list_code(texts),
            archives=self._archives,
            store=self._store,
            git=Git(settings.environ, ca_file=settings.ca_file),
            commits=carried_over.commits,
        )
        self._metadata = WheelMetadata(self._store, settings.cache)
        self._rules, self._index = rules_of(spec_file.spec.framework), _Index(self._store, self._metadata)
        self._own = own_names(spec_file)
        self._cache = settings.cache
        self._reader = WheelReader(self._store, settings.cache / f"wheel-contents-{RULES}.json", progress)
        self._unreadable: dict[tuple[str, str], Package] = {}  # passed to uv

    def know_release(self) -> Matrix:
        """Returns the matrix; if only an index knows the release, adds a row for it and shows the user a note.

        Raises FieldError if no index has the release, or if no index answers.
        """
        if self._rules.needs_index(self._matrix, self._spec.release):
            self._matrix, note = self._rules.learn(self._matrix, self._spec, self._index)
            if note:
                self._progress(Note(note))
        return self._matrix

    def check(self, variant: Variant) -> list[Finding]:
        """Applies the rules about requirements to one variant."""
        minor, release = self._matrix.release(variant.release, variant.framework)
        cuda_base = variant.cuda is not None and self._spec.cuda_from == "base"
        platform = self._spec.platform
        findings = check_requirements(self._named, variant, minor, release, platform=platform, cuda_base=cuda_base)
        findings += find_compiled(self._named, variant.framework, self._index)
        return findings + self._rules.check_lock(self._matrix, variant, self._index)

    def lock(self, variant: Variant, base_digest: Callable[[str], str], lock_debian: LockDebian) -> LockedVariant:
        """Locks one variant: its base's digest, its wheels and its Debian packages."""
        self._progress(Step(f"lock {variant.name}", f"resolving {variant.package} {variant.release}"))
        digest = self._carried_over.bases.get(variant.base) or base_digest(variant.base)
        target = self._target(variant)
        elsewhere = (line.split("==") for _, text in self.locked for line in text.splitlines())
        preferred = {
            **self._carried_over.versions(variant.name),
            **{normalise_name(name): version for name, version in elsewhere},
        }
        resolved, notes, wheels = self._resolve_for_python(variant, target, preferred)
        installer = self._sizes.wheels(self._compile(f"pip{self._pip(variant.python)}", target, preferred))[0]
        for row in resolved:
            if row.yanked is not None:
                self._progress(Note(f"{variant.name}: {describe_yank(f'{row.name} {row.version}', row.yanked)}"))
        packages = self._metadata.check_closed(wheels, variant, self._spec.platform, own=self._own, everything=True)
        named = frozenset(normalise_name(row.requirement.name) for row in self._named)
        variant = self._rules.check_wheels(self._spec, variant, wheels, named, packages)
        for note in notes:
            self._progress(Note(f"{variant.name}: {note}"))
        self._progress(Done(f"lock {variant.name}", Outcome.LOCKED, f"{len(resolved)} wheels"))
        trims = self._spec.trim is not False and variant.framework.trims
        return LockedVariant(
            variant=replace(variant, notes=(*variant.notes, *notes)),
            base_digest=digest,
            installer=installer,
            wheels=wheels,
            unused=self._reader.list_unused(wheels) if trims else (),
            needed_libraries=self._list_needed(wheels) if trims else None,
            debian=lock_debian(variant, digest),
        )

    def _list_needed(self, wheels: tuple[Wheel, ...]) -> tuple[str, ...] | None:
        """Lists, sorted, the shared libraries that wheels need and no wheel contains. A push reads them from the lock.

        Returns None if a wheel cannot be read. Raises what `WheelStore.fetch` raises.
        """
        known = known_wheels()
        self._store.fetch([wheel for wheel in wheels if wheel.sha256 not in known], self._progress)
        with WheelLibraries(wheels, self._store, self._cache, known) as libraries:
            names = set[str]().union(*libraries.find_missing(frozenset()).values())
            return tuple(sorted(names)) if libraries.is_complete else None

    def _resolve_for_python(
        self, variant: Variant, target: Target, preferred: Mapping[str, str]
    ) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...], tuple[Wheel, ...]]:
        """Returns the result of `_resolve`, and its wheels; avoids wheels that exclude this Python or others if it can.

        uv checks only the lower limit in a release's Requires-Python, not the upper limit. Also avoids wheels of other
        builds than the variant's.
        """
        unfit: tuple[str, ...] = ()
        builds = BuildWheels(self._store, variant, target, self._progress)
        builds.offer_named(self._named)
        resolved, notes = self._resolve(variant, target, preferred, unfit, builds)
        wheels = self._archives.add_sources(self._sizes.wheels(resolved))
        for _ in range(_MOST_ROUNDS):
            pairs = dict(find_pairs({normalise_name(wheel.name): wheel.version for wheel in wheels}))
            excluded = [f"{wheel.name}!={wheel.version}" for wheel in self._metadata.list_unfit(wheels, variant.python)]
            excluded += builds.list_limits(wheels, self._metadata.list_requiring(wheels, variant.package))
            more = [limit for limit in (*excluded, *pairs) if limit not in unfit]
            if not more:
                break
            unfit = (*unfit, *more)
            try:
                resolved, notes = self._resolve(variant, target, preferred, unfit, builds)
            except InputError:
                notes = (*notes, *pairs.values())
                break  # the requirements demand these wheels; `check_closed` reports those for other Pythons
            wheels = self._archives.add_sources(self._sizes.wheels(resolved))
        return resolved, notes, wheels

    def _target(self, variant: Variant) -> Target:
        system = self._matrix.systems.get(variant.os or "")
        glibc = system.glibc if system else _UNKNOWN_GLIBC
        return Target(python=variant.python, platform=self._spec.platform, glibc=glibc)

    def _resolve(
        self,
        variant: Variant,
        target: Target,
        preferred: Mapping[str, str],
        unfit: tuple[str, ...],
        builds: BuildWheels,
    ) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...]]:
        """Resolves without the releases in `unfit`; adds a sentence for each package that an archive makes older."""
        lines, limits = resolver_lines(self._folder, self._texts)
        lines = tuple(line for line in lines if not _is_another_build(line, variant))
        if variant.accelerator is not Accelerator.GPU:
            lines = tuple(_without_cuda(line, variant.framework) for line in lines)
        code = self._code.build(variant.python)
        others = tuple(name for name in variant.framework.packages if name != variant.package)
        # A dependency may require another package of the framework. It is removed later: the role's own has its files.
        same = tuple(f"{name}=={variant.release}" for name in others)
        try:
            text = "".join(f"{line}\n" for line in (*variant.requirements, *lines, *code.lines))
            constraints = (*variant.constraints, *same, *limits, *unfit)
            resolved, notes = self._archives.resolve(
                lambda only: self._compile(text, target, preferred, constraints, only, pages=builds.pages),
                target,
                build=self._spec.sdists == "build",
            )
        except UnknownPackageError as error:
            raise self._place_unknown(error, preferred) from error
        except InputError as error:
            error.message = f"{variant.name} ({', '.join(variant.roles)}): {error.message}"
            error.args = (error.message,)
            raise
        left_out = {*others, *code.left_out}
        return tuple(row for row in resolved if row.name not in left_out), notes

    def _place_unknown(self, error: UnknownPackageError, known: Mapping[str, str]) -> InputError:
        """Adds the line that names the package, and the most similar name that imgtool or the last lock knows."""
        name = normalise_name(error.name)
        line = next((row for row in self._named if normalise_name(row.requirement.name) == name), None)
        if line is None:
            return error
        minor, _ = self._matrix.release(self._spec.release, self._spec.framework)
        names = {*known, *minor.requires, *map(_name_of, minor.constraints)} - {name}
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
        hint = f"did you mean {near[0]}? Else {error.hint}" if near else error.hint
        message = f"{line.place}: {error.message}"
        placed = FieldError(message, field=PACKAGES if line.place.startswith(PACKAGES) else FIELD, hint=hint)
        placed.details = error.details
        return placed

    def _compile(
        self,
        text: str,
        target: Target,
        preferred: Mapping[str, str],
        constraints: tuple[str, ...] = (),
        wheels_only: frozenset[str] | None = None,
        *,
        pages: Mapping[str, tuple[IndexedFile, ...]] | None = None,
    ) -> tuple[ResolvedWheel, ...]:
        told = dict(self._unreadable)  # variants are locked in parallel, and each may add to the set
        try:
            return compile_requirements(
                text,
                target,
                environ=self._environ,
                constraints=constraints,
                find_links=self._archives.folders(),
                hashes=self._archives.allow_built(read_hashes(self._texts)),
                preferred=preferred,
                wheels_only=wheels_only,
                metadata=tuple(told.values()),
                pages=pages,
                bound=read_bindings(line for _, text in self._texts for line in text.splitlines()),
            )
        except UnreadableMetadataError as error:
            key = (error.name, error.version)
            package = None if key in told else self._unreadable.get(key) or self._metadata.of_release(*key)
            if package is None:
                raise
            self._unreadable[key] = package
        return self._compile(text, target, preferred, constraints, wheels_only, pages=pages)

    def _pip(self, python: str) -> str:
        last = self._matrix.last_pip.get(python)
        return f"=={last}" if last else ""


def _name_of(line: str) -> str:
    return normalise_name(re.split(r"[^\w.-]", line, maxsplit=1)[0])


def _is_another_build(line: str, variant: Variant) -> bool:
    """Returns whether a line names a package of the framework that the variant does not use; a rule warns about it."""
    name, (first, *_) = _name_of(line), variant.framework.packages
    return name in variant.framework.packages and name not in {variant.package, first}


def _without_cuda(line: str, framework: Framework) -> str:
    """Removes the framework's CUDA extras from a line, because they install gigabytes that only GPUs need."""
    match = re.match(r"(?P<name>[\w.-]+)\s*\[(?P<extras>[^]]*)\]", line)
    if match is None or normalise_name(match["name"]) not in framework.packages:
        return line
    given = match["extras"].split(",")
    extras = ",".join(extra for extra in given if normalise_name(extra.strip()) not in framework.cuda_extras)
    return f"{match['name']}{f'[{extras}]' if extras else ''}{line[match.end() :]}"


class _Index:
    """Sends the queries of the modules in `resolve.frameworks` to this machine's indexes."""

    def __init__(self, store: WheelStore, metadata: WheelMetadata) -> None:
        self._store, self._metadata = store, metadata
        self._files: dict[str, IndexedFile] = {}

    def list_files(self, package: str, build: str = "") -> tuple[str, ...]:
        index = self._store.index
        found = index.files_of_build(package, build) if build else index.files(package)
        files = {file.file: file for file in found}
        self._files |= files
        return tuple(files)

    def read(self, file: str) -> Package:
        return self._metadata.of_file(self._files[file])

    def find_links(self) -> tuple[str, ...]:
        return tuple(self._store.index.places().find_links)


class Sizes:
    """Converts resolved wheels to wheels of the lock. Safe for several threads.

    Args:
        store: stores the URL of each file, and contains the index.
        path: the file that keeps sizes by sha256 between runs.
    """

    def __init__(self, store: WheelStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._lock = threading.Lock()

    def wheels(self, resolved: tuple[ResolvedWheel, ...]) -> tuple[Wheel, ...]:
        """Adds sizes to the wheels, from the index's page, else from an earlier run, else from the server."""
        sizes = {row.sha256: row.size for row in resolved if row.size is not None}
        sizes = {**_read_sizes(self._path), **sizes}
        unknown = {row.sha256: row.url for row in resolved if row.sha256 not in sizes}
        if unknown:
            with ThreadPoolExecutor(min(_JOBS, len(unknown))) as pool:
                answers = dict(zip(unknown, pool.map(self._store.index.size, unknown.values()), strict=True))
            sizes |= answers
            with self._lock:
                write_cached(self._path, {**_read_sizes(self._path), **answers})
        for row in resolved:
            self._store.remember(row.sha256, row.url)
        return tuple(
            Wheel(
                name=normalise_name(row.name),
                version=row.version,
                file=row.file,
                sha256=row.sha256,
                size=sizes[row.sha256],
            )
            for row in resolved
        )


def _read_sizes(path: Path) -> dict[str, int]:
    """Reads the map from the sha256 of files to their sizes; returns an empty map if the map's file is damaged."""
    rows = read_cached(path)
    if not isinstance(rows, dict):
        return {}
    return {key: size for key, size in rows.items() if isinstance(size, int) and size > 0}
