"""What the names and versions of wheels say about a framework without a table: Pythons, glibc, CUDA, its row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from training_imgtool.base.errors import FieldError, UsageError
from training_imgtool.model.lock import Variant, Wheel
from training_imgtool.model.requirements import FIELD
from training_imgtool.resolve.versions.closure import Package
from training_imgtool.resolve.versions.matrix import Minor, Release, version_key

MACHINES = ("x86_64", "aarch64")
_MOST_LISTED = 12
_OLDEST_GLIBC = "2.17"
_CUDA_WHEELS = ("nvidia-cuda-runtime", "nvidia-cudnn")
_GLIBC = re.compile(r"manylinux_(\d+_\d+)_")


def list_pythons(files: Iterable[str], version: str, machine: str) -> tuple[str, ...]:
    """Lists the Python versions, oldest first, that the wheels of `version` support on Linux and `machine`."""
    found = set()
    for file in files:
        try:
            _, of_file, _, tags = parse_wheel_filename(file)
        except ValueError:
            continue
        if of_file == Version(version):
            found |= {
                f"{tag.interpreter[2]}.{tag.interpreter[3:]}"
                for tag in tags
                if tag.interpreter.startswith("cp3") and "linux" in tag.platform and tag.platform.endswith(machine)
            }
    return tuple(sorted(found, key=version_key))


def find_glibc(files: Iterable[str], version: str) -> str:
    """Returns the oldest glibc for which a version has a wheel, by PEP 600; manylinux2014 is that of 2.17."""
    own = [file for file in files if file.split("-")[1] == version]
    found = [match[1].replace("_", ".") for file in own if (match := _GLIBC.search(file))]
    return min(found, key=version_key, default=_OLDEST_GLIBC)


def list_versions(files: Iterable[str]) -> list[Version]:
    """Lists the versions of wheels, oldest first, each with its local part."""
    texts = {file.split("-")[1] for file in files if file.endswith(".whl")}
    return sorted(map(Version, filter(is_version, texts)))


def suggest_releases(files: Iterable[str], version: str) -> str | None:
    """Returns a hint with the newest releases on an index, those of the same minor version first; None without any."""
    listed = [one for one in list_versions(files) if not one.is_prerelease and not one.local]
    alike = [one for one in listed if is_version(version) and one.release[:2] == Version(version).release[:2]]
    return f"the index has {', '.join(map(str, (alike or listed)[-3:]))}" if listed else None


def is_version(text: str) -> bool:
    """Returns whether a text is a version of PEP 440."""
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


def make_row(
    package: str,
    version: str,
    pythons: Mapping[str, tuple[str, ...]],
    *,
    cuda: str = "12.0",
    cudnn: str = "9.0",
    glibc: str = _OLDEST_GLIBC,
    metadata: Package | None = None,
    builds: Mapping[str, str] | None = None,
) -> tuple[Minor, Release]:
    """Makes the row of a release of `package`; `pythons` are those with wheels, by machine."""
    x86, arm = (pythons[machine] for machine in MACHINES)
    release = Release(version=version, pythons=x86, pythons_arm=arm, packages=frozenset({package}), builds=builds or {})
    plain = [Requirement(line) for line in (metadata.requires if metadata else ())]
    minor = Minor(
        name=".".join(version.split(".")[:2]),
        source="METADATA",
        recommended=version,
        releases={version: release},
        cuda=cuda,
        cudnn=cudnn,
        glibc=glibc,
        pip="20.3",
        requires={canonicalize_name(row.name): str(row.specifier) for row in plain if row.marker is None},
    )
    return minor, release


def list_newest(rows: Mapping[str, tuple[Minor, Release]]) -> list[dict[str, Any]]:
    """Lists the newest releases among rows, the newest first, each with its Pythons."""
    newest = [release for _, release in rows.values()][: -_MOST_LISTED - 1 : -1]
    return [{"release": row.version, "python": [*row.pythons], "python_arm64": [*row.pythons_arm]} for row in newest]


def print_newest(releases: list[dict[str, Any]], release: str | None, title: str) -> tuple[dict[str, Any], str]:
    """Returns the releases, or one of them, as data and as text; raises UsageError if it is not among them."""
    rows = [row for row in releases if release in {None, row["release"]}]
    if release is not None and not rows:
        raise UsageError(f"{title} {release} is not among the newest {_MOST_LISTED} releases of the package index")
    texts = ((row["release"], *(", ".join(row[key]) or "none" for key in ("python", "python_arm64"))) for row in rows)
    lines = (f"{version:10}  x86-64: {pythons}  aarch64: {pythons_arm}\n" for version, pythons, pythons_arm in texts)
    return {"releases": rows}, "".join(lines)


def refuse_others(
    title: str, others: Iterable[str], wheels: Iterable[Wheel], named: frozenset[str], packages: Iterable[Package]
) -> None:
    """Raises FieldError for a package among `others`, those of another framework, that no requirement names."""
    versions, rows = {wheel.name: wheel.version for wheel in wheels}, (*packages,)
    for name in others:
        if name in versions and name not in named:
            chain = _list_requirers(name, rows)
            by = ", which requires ".join((*chain, f"{name} {versions[name]}")).replace(", which", "", 1)
            message = f"{by if chain else f'another requirement brings {name}'}, and {title} does not need it"
            other = chain[0] if chain else "the one that needs it"
            hint = f"name {name} in the requirements if the program imports it; if not, remove {other}"
            raise FieldError(message, field=FIELD, hint=hint)


def _list_requirers(name: str, packages: tuple[Package, ...]) -> tuple[str, ...]:
    """Returns packages that lead to `name`: each requires the next, and the last requires `name`."""
    chain = [name]
    while parent := next((row.name for row in packages if row.name not in chain and _requires(row, chain[0])), None):
        chain.insert(0, parent)
    return tuple(chain[:-1])


def _requires(package: Package, name: str) -> bool:
    rows = map(Requirement, package.requires)
    return any(canonicalize_name(row.name) == name and "extra" not in str(row.marker) for row in rows)


def with_cuda(variant: Variant, versions: Mapping[str, str]) -> Variant:
    """Returns the variant with the CUDA and cuDNN that are among the wheels; `versions` are theirs, by name."""
    if variant.cuda is None:
        return variant
    found = {word: next((v for n, v in versions.items() if n.startswith(word)), None) for word in _CUDA_WHEELS}
    runtime, cudnn = (".".join(version.split(".")[:3]) if version else None for version in found.values())
    return replace(variant, cuda=runtime or variant.cuda, cudnn=cudnn or variant.cudnn)
