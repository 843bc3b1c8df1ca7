"""`imgtool compat --check`: whether the matrix still agrees with the package index, and its bases with the registries.

The comparisons are pure; `find_drifts` asks. It sends one request per TensorFlow package, one per Python image, three
per nvidia/cuda image, and up to five per base of a lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from packaging.version import Version

from training_imgtool.commands.compat import chosen_releases
from training_imgtool.core.errors import ImgtoolError, InputError, RegistryRefusedError, VerificationError
from training_imgtool.core.reference import Tag, parse_reference
from training_imgtool.core.settings import Settings
from training_imgtool.core.threads import run_all
from training_imgtool.lock.lockfile import read_lock
from training_imgtool.pipeline.current_lock import digest_of
from training_imgtool.plan import Lock
from training_imgtool.registry.connect import Registries, connect
from training_imgtool.registry.manifests import NoPlatformError, choose, parse_platform
from training_imgtool.versions.matrix import CudaImage, Matrix, Minor, load_matrix
from training_imgtool.versions.published import Published, published_versions
from training_imgtool.wheels.index.index import Index, open_index

PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-tpu")
_PLATFORM, _ARM_PLATFORM = "linux/amd64", "linux/arm64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference: what imgtool expects of `subject`, and what the index or the registry says."""

    subject: str
    expected: str
    actual: str

    def as_data(self) -> dict[str, str]:
        """The difference as plain data."""
        return {"subject": self.subject, "expected": self.expected, "actual": self.actual}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A question that got no answer: nothing is known of `subject`."""

    subject: str
    error: ImgtoolError

    @property
    def code(self) -> int:
        """The exit code: the error's own, but not that of a difference."""
        code = self.error.exit_code
        return RegistryRefusedError.exit_code if code == VerificationError.exit_code else code

    def as_data(self) -> dict[str, Any]:
        """The question as plain data."""
        return {"subject": self.subject, "reason": str(self.error), "code": self.code}


def release_drifts(
    matrix: Matrix, minors: tuple[Minor, ...], package: str, published: Mapping[str, Published]
) -> Iterator[Drift]:
    """Where the index's files of `package` and the rows of `minors` differ."""
    if not published and any(package in row.packages for minor in minors for row in minor.releases.values()):
        yield Drift(subject=package, expected="on the index", actual="no wheel for Linux on x86_64 of any release")
        return
    for minor in minors:
        for release in minor.releases.values():
            subject = f"{package} {release.version}"
            actual = published.get(release.version)
            if package not in release.packages:
                if actual is not None:
                    yield Drift(subject=subject, expected="no wheel", actual="on the index")
            elif actual is None:
                yield Drift(subject=subject, expected="on the index", actual="no wheel for Linux on x86_64")
            else:
                yield from _of_release(subject, release.pythons, actual)
                if package == "tensorflow" and actual.pythons_arm != set(release.pythons_arm):
                    arm = _format_pythons(release.pythons_arm), _format_pythons(actual.pythons_arm)
                    yield Drift(subject=f"{subject} for aarch64", expected=arm[0], actual=arm[1])
    if package == "tensorflow":
        yield from _new_releases(matrix, minors, published)


def _of_release(subject: str, pythons: tuple[str, ...], actual: Published) -> Iterator[Drift]:
    if actual.yanked is not None:
        yield Drift(subject=subject, expected="on the index", actual=f"yanked: {actual.yanked or 'no reason given'}")
    if actual.pythons != set(pythons):
        yield Drift(subject=subject, expected=_format_pythons(pythons), actual=_format_pythons(actual.pythons))


def _new_releases(matrix: Matrix, minors: tuple[Minor, ...], published: Mapping[str, Published]) -> Iterator[Drift]:
    """Releases that the matrix lacks: of these minors, and, where all are looked at, newer than every one of them."""
    newest = Version(f"{list(matrix.minors)[-1]}.0")
    names = {minor.name for minor in minors}
    for version in sorted(map(Version, published)):
        name = f"{version.major}.{version.minor}"
        is_newer = version > newest and name not in matrix.minors and len(minors) == len(matrix.minors)
        if is_newer or (name in names and str(version) not in matrix.minors[name].releases):
            yield Drift(subject=f"tensorflow {version}", expected="not in the matrix", actual="on the index")


def image_drifts(image: CudaImage, environment: Mapping[str, str]) -> Iterator[Drift]:
    """Where the environment of an nvidia/cuda image names another CUDA or cuDNN than the matrix."""
    subject = f"nvidia/cuda:{image.tag}"
    wanted = [("CUDA", image.cuda, environment.get("CUDA_VERSION"))]
    if image.cudnn is not None:
        wanted.append(("cuDNN", image.cudnn, environment.get("NV_CUDNN_VERSION")))
    for what, expected, named in wanted:
        actual = (named or "none").partition("-")[0]
        if actual != expected and not actual.startswith(f"{expected}."):
            yield Drift(subject=subject, expected=f"{what} {expected}", actual=f"{what} {actual}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """What a check found, and what it could not ask."""

    matrix: str  # its version
    subjects: int  # how many packages, images and bases the check looked at
    drifts: tuple[Drift, ...]
    unanswered: tuple[Unanswered, ...]

    def as_data(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "matrix": self.matrix,
            "subjects": self.subjects,
            "drifts": [drift.as_data() for drift in self.drifts],
            "unanswered": [row.as_data() for row in self.unanswered],
        }

    def as_text(self) -> str:
        """The report for people: a line per difference, a line per question without an answer, and a summary."""
        lines = [f"drift       {row.subject}: expected {row.expected}, found {row.actual}" for row in self.drifts]
        lines += [f"unanswered  {row.subject}: {row.error}" for row in self.unanswered]
        counts = f"{len(self.drifts)} differences, {len(self.unanswered)} without an answer"
        return "\n".join([*lines, f"matrix {self.matrix}: {self.subjects} subjects, {counts}", ""])


def check_matrix(settings: Settings, *, release: str | None, locks: tuple[Path, ...]) -> DriftReport:
    """Checks imgtool's own matrix, or the rows of one release or minor, and the bases of `locks`.

    Raises UsageError for a release that is not in the matrix, and InputError for a lock that cannot be read.
    """
    matrix = load_matrix()
    if release is not None:
        chosen_releases(matrix, release)
    read = tuple(read_lock(path) for path in locks)
    with connect(settings) as registries:
        return find_drifts(matrix, open_index(settings, Path()), registries, release=release, locks=read)


def find_drifts(
    matrix: Matrix, index: Index, registries: Registries, *, release: str | None = None, locks: tuple[Lock, ...] = ()
) -> DriftReport:
    """Asks the index and the registries.

    Args:
        matrix: what to check.
        index: this machine's package index.
        registries: where the base images are read, mirrors applied.
        release: a release or a minor, to check its rows alone.
        locks: whose bases are checked, too: whether each tag still names the locked digest.
    """
    minors = (matrix.minor_of(release),) if release else tuple(matrix.minors.values())
    tasks: dict[str, Callable[[], list[Drift]]] = {
        package: partial(_index_drifts, matrix, minors, package, index) for package in PACKAGES
    }
    for tag in dict.fromkeys(base.tag for minor in minors for base in minor.bases):
        tasks[f"nvidia/cuda:{tag}"] = partial(_cuda_drifts, matrix.cuda_images[tag], registries)
    releases = [release for minor in minors for release in minor.releases.values()]
    pythons = {python for release in releases for python in release.pythons}
    arm_pythons = {python for release in releases for python in release.pythons_arm}
    for python, python_image in matrix.python_images.items():
        if python in pythons:
            platforms = (_PLATFORM, *([_ARM_PLATFORM] if python in arm_pythons else []))
            name = f"python:{python_image.tag}"
            tasks[name] = partial(_tag_drifts, name, platforms, registries)
    for lock in locks:
        tasks |= {f"lock {base}": task for base, task in _lock_tasks(lock, registries).items()}
    results = run_all({subject: partial(_answer, subject, task) for subject, task in tasks.items()})
    drifts = [drift for result in results.values() if isinstance(result, list) for drift in result]
    return DriftReport(
        matrix=matrix.version,
        subjects=len(results),
        drifts=tuple(drifts),
        unanswered=tuple(result for result in results.values() if isinstance(result, Unanswered)),
    )


def lock_drifts(lock: Lock, settings: Settings) -> tuple[Drift, ...]:
    """The bases of a lock whose tag is gone or names another image now; a registry that does not answer is left out."""
    with connect(settings) as registries:
        tasks = _lock_tasks(lock, registries)
        results = run_all({base: partial(_answer, base, task) for base, task in tasks.items()})
    return tuple(drift for result in results.values() if isinstance(result, list) for drift in result)


def _answer(subject: str, task: Callable[[], list[Drift]]) -> list[Drift] | Unanswered:
    try:
        return task()
    except ImgtoolError as error:
        return Unanswered(subject=subject, error=error)


def _index_drifts(matrix: Matrix, minors: tuple[Minor, ...], package: str, index: Index) -> list[Drift]:
    published = published_versions((row.file, row.yanked) for row in index.files(package))
    return list(release_drifts(matrix, minors, package, published))


def _tag_drifts(name: str, platforms: tuple[str, ...], registries: Registries) -> list[Drift]:
    """Whether a tag is there, and has an image for each platform; an image without an index says nothing of those."""
    tag = registries.source(parse_reference(name).repository).tag(name.partition(":")[2])
    manifest = registries.at(tag.repository).find_manifest(tag)
    if manifest is None:
        return [_missing_tag(name)]
    drifts = []
    for platform in platforms if manifest.is_index else ():
        try:
            choose(manifest, parse_platform(platform), name)
        except NoPlatformError as error:
            drifts.append(_missing_platform(name, platform, error))
    return drifts


def _cuda_drifts(image: CudaImage, registries: Registries) -> list[Drift]:
    name = f"nvidia/cuda:{image.tag}"
    source = registries.source(parse_reference(name).repository)
    registry = registries.at(source)
    try:
        manifest = registry.manifest(source.tag(image.tag), _PLATFORM)
    except NoPlatformError as error:
        return [_missing_platform(name, _PLATFORM, error)]
    except RegistryRefusedError:
        if registry.head(source.tag(image.tag)) is None:
            return [_missing_tag(name)]
        raise
    return list(image_drifts(image, _environment(registry.read(source, manifest.config))))


def _missing_tag(name: str) -> Drift:
    return Drift(subject=name, expected="a tag of the registry", actual="no such tag")


def _missing_platform(name: str, platform: str, error: NoPlatformError) -> Drift:
    return Drift(subject=name, expected=f"an image for {platform}", actual=f"images for {error.offered}")


def _environment(config: bytes) -> dict[str, str]:
    """The variables of an image's config; what is not text does not count."""
    try:
        rows = json.loads(config)["config"]["Env"]
        return dict(row.split("=", 1) for row in rows if isinstance(row, str) and "=" in row)
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _lock_tasks(lock: Lock, registries: Registries) -> dict[str, Callable[[], list[Drift]]]:
    return {
        locked.variant.base: partial(_base_drifts, locked.variant.base, locked.base_digest, lock.platform, registries)
        for locked in lock.variants
        if isinstance(parse_reference(locked.variant.base), Tag)
    }


def _base_drifts(base: str, digest: str, platform: str, registries: Registries) -> list[Drift]:
    tag = parse_reference(base)
    source = registries.source(tag.repository)
    if isinstance(tag, Tag) and registries.at(source).head(source.tag(tag.name)) is None:
        return [Drift(subject=base, expected=digest, actual="no such tag any more")]
    try:
        actual = digest_of(base, platform, registries)
    except (InputError, NoPlatformError) as error:  # it has lost the platform
        actual = error.message
    return [] if actual == digest else [Drift(subject=base, expected=digest, actual=actual)]


def _format_pythons(pythons: frozenset[str] | tuple[str, ...]) -> str:
    if not pythons:
        return "no wheel"
    return "Python " + " ".join(sorted(pythons, key=lambda name: tuple(map(int, name.split(".")))))
