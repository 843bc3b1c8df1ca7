"""Makes a lock: resolves the spec, reads the bases' digests, and has uv choose the wheels."""

from __future__ import annotations

import difflib
import io
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from training_imgtool.base.errors import FieldError, FieldListError, InputError, TemporaryError
from training_imgtool.base.json_cache import read_cached, write_cached
from training_imgtool.base.progress import Done, Note, Outcome, Progress, Step
from training_imgtool.base.settings import Settings
from training_imgtool.base.threads import run_all
from training_imgtool.model.load import SpecFile
from training_imgtool.model.own_projects import own_names
from training_imgtool.model.plan import Lock, LockedDebian, LockedVariant, Variant, Wheel
from training_imgtool.model.requirement_files import read_locked, read_texts
from training_imgtool.model.requirements import (
    FIELD,
    PACKAGES,
    Named,
    index_options,
    list_code,
    normalise_name,
    parse_requirements,
    read_hashes,
    resolver_lines,
)
from training_imgtool.model.spec import Accelerator
from training_imgtool.resolve.lock.archives import ArchiveBuilder, Built
from training_imgtool.resolve.lock.carry_over import NOTHING_CARRIED_OVER, CarriedOver
from training_imgtool.resolve.lock.code import CodeBuilder, hash_code
from training_imgtool.resolve.lock.lockfile import asks_for_keras_2, inputs_hash
from training_imgtool.resolve.lock.trim import RULES, WheelReader
from training_imgtool.resolve.versions.closure import Package
from training_imgtool.resolve.versions.derive import add_release, is_newer, list_pythons
from training_imgtool.resolve.versions.matrix import Matrix, version_key
from training_imgtool.resolve.versions.resolve import resolve
from training_imgtool.resolve.versions.rules import Finding, check_libtpu, raise_errors
from training_imgtool.resolve.versions.rules_requirements import TENSORFLOW_PACKAGES, check_lines, check_requirements
from training_imgtool.resolve.wheels.index.pip_config import make_uv_environ
from training_imgtool.resolve.wheels.libraries import WheelLibraries, known_wheels
from training_imgtool.resolve.wheels.metadata import WheelMetadata
from training_imgtool.resolve.wheels.sources.git import Git
from training_imgtool.resolve.wheels.sources.sdist import LARGEST_ARCHIVE, build_wheel, name_wheel
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
_OWN_KERAS_2 = (2, 15)  # from this TensorFlow on, TF_USE_LEGACY_KERAS takes tf.keras from the package tf-keras
_UNKNOWN_GLIBC = "2.28"  # for a base of unknown content: what most wheels are built for (manylinux_2_28)


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
    """Resolves versions, bases and wheels.

    Args:
        spec_file: the spec; its requirements files are read.
        matrix: which versions go together.
        base_digest: the manifest digest of a base by its name, for the spec's platform.
        settings: the machine's.
        progress: receives each step and the warnings.
        carried_over: what the new lock takes over from the previous one.
        lock_debian: resolves the Debian packages of a variant on the base of a digest.
        built: wheels of source archives that a lock before this one built, which gains those of this one.

    Raises:
        FieldError, FieldListError: something in the spec or its requirements does not fit, with its place.
        InputError: uv finds no set of wheels; `details` is its explanation.
        TemporaryError, CredentialsError: the index or the registry does not answer, or refuses.
    """
    spec = spec_file.spec
    try:
        texts = read_texts(spec_file)
        hashes = hash_code(spec_file, list_code(texts))
        maker = _Maker(spec_file, matrix, settings, progress, texts, carried_over=carried_over, built=built)
        resolution = resolve(spec, maker.know_release(spec.tensorflow), texts)
        findings = check_lines(texts)
        findings += [finding for variant in resolution.variants for finding in maker.check(variant)]
        warnings = (*resolution.warnings, *raise_errors(findings))
    except FieldListError as error:
        raise FieldListError(tuple(spec_file.located(located_error) for located_error in error.errors)) from error
    except FieldError as error:
        raise spec_file.located(error) from error
    for warning in dict.fromkeys(warnings):
        progress(Note(warning))
    maker.build_missing(resolution.variants)
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
    """What all variants of one lock share."""

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
        self._texts = texts
        self._carried_over = carried_over
        self.locked = read_locked(spec_file)  # by the project's other tool
        self._named: tuple[Named, ...] = parse_requirements(texts)
        self._environ = make_uv_environ(settings.environ, ca_file=settings.ca_file)
        self._store = WheelStore(settings, options=lambda: index_options(spec_file.folder, texts))
        self._sizes = Sizes(self._store, settings.cache / "wheel-sizes.json")
        self._archives = ArchiveBuilder(self._store, environ=self._environ, progress=progress, built=built)
        self._code = CodeBuilder(
            spec_file,
            list_code(texts),
            archives=self._archives,
            store=self._store,
            git=Git(settings.environ, ca_file=settings.ca_file),
            commits=carried_over.commits,
        )
        self._metadata = WheelMetadata(self._store, settings.cache)
        self._own = own_names(spec_file)
        self._cache = settings.cache
        self._reader = WheelReader(self._store, settings.cache / f"wheel-contents-{RULES}.json", progress)
        self._matrix_wheels: dict[str, Wheel] = {}
        self._unreadable: dict[tuple[str, str], Package] = {}  # to uv

    def know_release(self, version: str) -> Matrix:
        """Returns the matrix, with a row for a release that is newer than it and on an index; a warning says so.

        Raises FieldError if no index has the release, or none answers.
        """
        if not is_newer(self._matrix, version):
            return self._matrix
        index, table = self._store.index, f"imgtool's table of {self._matrix.version}"
        try:
            files = {name: index.files(name) for name in TENSORFLOW_PACKAGES}
            names = {name: tuple(file.file for file in rows) for name, rows in files.items()}
            pythons = list_pythons(names["tensorflow"], version, "x86_64")
            if not pythons:
                message = (
                    f"neither imgtool's table of {self._matrix.version} nor the package index has TensorFlow {version}"
                )
                raise FieldError(message, field="tensorflow", hint="imgtool compat lists what the table has")
            wheel = next(file for file in files["tensorflow"] if list_pythons((file.file,), version, "x86_64"))
            requires = self._metadata.of_file(wheel).requires
        except TemporaryError as error:
            message = f"{table} has no TensorFlow {version}, and {error.message}"
            raise FieldError(message, field="tensorflow", hint=error.hint) from error
        self._progress(
            Note(
                f"TensorFlow {version} is newer than {table}: its Pythons, CUDA and bounds come from its wheel's "
                "metadata, and nobody has tried them"
            )
        )
        self._matrix = add_release(self._matrix, version, names, requires)
        return self._matrix

    def check(self, variant: Variant) -> list[Finding]:
        """Applies the rules about requirements, for one variant."""
        minor, release = self._matrix.release(variant.tensorflow)
        cuda_base = variant.cuda is not None and self._spec.cuda_from == "base"
        platform = self._spec.platform
        findings = check_requirements(self._named, variant, minor, release, platform=platform, cuda_base=cuda_base)
        if variant.package == "tensorflow-tpu":
            findings += check_libtpu(release, self._matrix, self._store.index.places().find_links)
        return findings

    def build_missing(self, variants: tuple[Variant, ...]) -> None:
        """Builds the wheels of the matrix' source archives, once per machine."""
        minors = [self._matrix.minor_of(variant.tensorflow) for variant in variants]
        needed = {f"{name}=={version}" for minor in minors for name, version in minor.sdists.items()}
        for requirement in sorted(needed):
            archive = self._matrix.sdists[requirement]
            found = self._store.index.locate(archive.name, archive.file, archive.sha256)
            if found is None:
                continue  # then uv says what is missing
            self._progress(Step(f"wheel {requirement}", f"building {archive.file}"))
            data = b"".join(self._store.index.read(found.url, limit=LARGEST_ARCHIVE))
            wheel = self._store.put(name_wheel(archive), io.BytesIO(build_wheel(archive, data)))
            self._matrix_wheels[requirement] = wheel
            self._progress(Done(f"wheel {requirement}", Outcome.BUILT, wheel.file))

    def lock(self, variant: Variant, base_digest: Callable[[str], str], lock_debian: LockDebian) -> LockedVariant:
        """Locks one variant: its base's digest, its wheels and its Debian packages."""
        self._progress(Step(f"lock {variant.name}", f"resolving {variant.package} {variant.tensorflow}"))
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
        self._metadata.check_closed(wheels, variant, self._spec.platform, own=self._own, everything=True)
        self._check_keras(variant, wheels)
        for note in notes:
            self._progress(Note(f"{variant.name}: {note}"))
        self._progress(Done(f"lock {variant.name}", Outcome.LOCKED, f"{len(resolved)} wheels"))
        return LockedVariant(
            variant=replace(variant, notes=(*variant.notes, *notes)),
            base_digest=digest,
            installer=installer,
            wheels=wheels,
            unused=() if self._spec.trim is False else self._reader.list_unused(wheels),
            needed_libraries=None if self._spec.trim is False else self._list_needed(wheels),
            debian=lock_debian(variant, digest),
        )

    def _check_keras(self, variant: Variant, wheels: tuple[Wheel, ...]) -> None:
        """Raises FieldError where the environment asks TensorFlow for Keras 2 as a package, and no wheel is that."""
        asked = [role for role in variant.roles if asks_for_keras_2(self._spec, role)]
        if version_key(variant.tensorflow) < _OWN_KERAS_2:
            return
        if asked and not any(normalise_name(wheel.name) == "tf-keras" for wheel in wheels):
            minor = ".".join(variant.tensorflow.split(".")[:2])
            raise FieldError(
                f"with TF_USE_LEGACY_KERAS, tf.keras of {', '.join(asked)} is the package tf-keras, which is not there",
                field="env.TF_USE_LEGACY_KERAS",
                hint=f"add tf-keras=={minor}.* to the requirements, or leave the variable out",
            )

    def _list_needed(self, wheels: tuple[Wheel, ...]) -> tuple[str, ...] | None:
        """Lists the shared libraries that wheels need and none brings, sorted, so that no push reads the wheels for it.

        Returns None if a wheel cannot be read. Raises as `WheelStore.fetch`.
        """
        known = known_wheels()
        self._store.fetch([wheel for wheel in wheels if wheel.sha256 not in known], self._progress)
        with WheelLibraries(wheels, self._store, self._cache, known) as libraries:
            names = set[str]().union(*libraries.find_missing(frozenset()).values())
            return tuple(sorted(names)) if libraries.is_complete else None

    def _resolve_for_python(
        self, variant: Variant, target: Target, preferred: Mapping[str, str]
    ) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...], tuple[Wheel, ...]]:
        """Returns what `_resolve` does, and the wheels: none that is for older Pythons alone, where others do.

        uv heeds the lower limit of a release's Requires-Python, and no other.
        """
        unfit: tuple[str, ...] = ()
        resolved, notes = self._resolve(variant, target, preferred, unfit)
        wheels = self._archives.add_sources(self._sizes.wheels(resolved))
        for _ in range(_MOST_ROUNDS):
            more = self._metadata.list_unfit(wheels, variant.python)
            if not more:
                break
            unfit = (*unfit, *(f"{wheel.name}!={wheel.version}" for wheel in more))
            try:
                resolved, notes = self._resolve(variant, target, preferred, unfit)
            except InputError:
                break  # the requirements want just these: `check_closed` says so
            wheels = self._archives.add_sources(self._sizes.wheels(resolved))
        return resolved, notes, wheels

    def _target(self, variant: Variant) -> Target:
        system = self._matrix.systems.get(variant.os or "")
        glibc = system.glibc if system else _UNKNOWN_GLIBC
        return Target(python=variant.python, platform=self._spec.platform, glibc=glibc)

    def _resolve(
        self, variant: Variant, target: Target, preferred: Mapping[str, str], unfit: tuple[str, ...]
    ) -> tuple[tuple[ResolvedWheel, ...], tuple[str, ...]]:
        """Returns the wheels, none of `unfit`, and a sentence for each package that is older because of an archive."""
        lines, limits = resolver_lines(self._folder, self._texts)
        lines = tuple(line for line in lines if not _is_another_tensorflow(line, variant.package))
        if variant.accelerator is not Accelerator.GPU:
            lines = tuple(map(_without_cuda, lines))
        code = self._code.build(variant.python)
        others = tuple(name for name in TENSORFLOW_PACKAGES if name != variant.package)
        # What depends on `tensorflow` gets this release's; it is left out again: the role's package has its files.
        same = tuple(f"{name}=={variant.tensorflow}" for name in others)
        try:
            text = "".join(f"{line}\n" for line in (*variant.requirements, *lines, *code.lines))
            constraints = (*variant.constraints, *same, *limits, *unfit)
            resolved, notes = self._archives.resolve(
                lambda wheels_only: self._compile(text, target, preferred, constraints, wheels_only),
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
        """Adds the line that names a package, and the nearest name among those that imgtool or the last lock has."""
        name = normalise_name(error.name)
        line = next((row for row in self._named if normalise_name(row.requirement.name) == name), None)
        if line is None:
            return error
        minor = self._matrix.minor_of(self._spec.tensorflow)
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
    ) -> tuple[ResolvedWheel, ...]:
        folders = {path.parent for wheel in self._matrix_wheels.values() if (path := self._store.path(wheel))}
        told = dict(self._unreadable)  # variants are locked side by side, and each may add to it
        try:
            return compile_requirements(
                text,
                target,
                environ=self._environ,
                constraints=constraints,
                find_links=tuple(sorted({*folders, *self._archives.folders()})),
                hashes=self._archives.allow_built(read_hashes(self._texts)),
                preferred=preferred,
                wheels_only=wheels_only,
                metadata=tuple(told.values()),
            )
        except UnreadableMetadataError as error:
            key = (error.name, error.version)
            package = None if key in told else self._unreadable.get(key) or self._metadata.of_release(*key)
            if package is None:
                raise
            self._unreadable[key] = package
        return self._compile(text, target, preferred, constraints, wheels_only)

    def _pip(self, python: str) -> str:
        last = self._matrix.last_pip.get(python)
        return f"=={last}" if last else ""


def _name_of(line: str) -> str:
    return normalise_name(re.split(r"[^\w.-]", line, maxsplit=1)[0])


def _is_another_tensorflow(line: str, package: str) -> bool:
    """Says whether a line names another TensorFlow package than the variant's; a rule has said so."""
    name = _name_of(line)
    return name in TENSORFLOW_PACKAGES and name not in {package, "tensorflow"}


def _without_cuda(line: str) -> str:
    """Returns a line without TensorFlow's extra and-cuda, which would bring two gigabytes that only GPUs open."""
    match = re.match(r"(?P<name>[\w.-]+)\s*\[(?P<extras>[^]]*)\]", line)
    if match is None or normalise_name(match["name"]) not in TENSORFLOW_PACKAGES:
        return line
    extras = ",".join(extra for extra in match["extras"].split(",") if normalise_name(extra.strip()) != "and-cuda")
    return f"{match['name']}{f'[{extras}]' if extras else ''}{line[match.end() :]}"


class Sizes:
    """Turns the rows of a resolution into wheels of the lock. Safe for several threads.

    Args:
        store: learns where each file was, and knows the index.
        path: keeps sizes by sha256 between runs.
    """

    def __init__(self, store: WheelStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._lock = threading.Lock()

    def wheels(self, resolved: tuple[ResolvedWheel, ...]) -> tuple[Wheel, ...]:
        """Adds sizes to the wheels: from the index's page, else from an earlier run, else from the server."""
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
    """Sizes by sha256, which never change; a damaged file counts for nothing."""
    rows = read_cached(path)
    if not isinstance(rows, dict):
        return {}
    return {key: size for key, size in rows.items() if isinstance(size, int) and size > 0}
